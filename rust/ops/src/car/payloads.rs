//! Push parser for the payloads that a request has named: a CAR in chunks of any size, whose blocks are checked.
//!
//! ```text
//! | header: bafkqaaa | head of block | bytes | head of block | bytes | ...
//!                      one of the requested CIDs, in their order; some may be left out
//! ```
//!
//! Keeps no bytes of payloads: each part is passed on as it comes, and the last one of a payload only if the whole has
//! its CID's hash.

use coregw_core::payload::{self, Check};
use coregw_core::{Cid, Error, InputCode, Result, cid, varint};

use super::format::payload_car_header;

/// A part of a requested payload. The parts of a payload come in order, and one payload after the other.
#[derive(Debug, PartialEq, Eq)]
pub struct PayloadPart<'a> {
    /// Which of the requested payloads it is of.
    pub index: usize,
    /// The size of the whole payload, as the answer claims.
    pub size: u64,
    /// Where the part starts.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether the payload ends with it. Then all its parts together have the CID's hash; until then none is verified.
    pub is_last: bool,
}

/// What is read next.
enum State {
    /// The header, the length of a block, or its CID: collected in the buffer.
    Header,
    Length,
    /// So many bytes, which contain the CID; the length of the block.
    Head(usize, u64),
    /// A payload: its index, its size, where the next part starts.
    Payload(usize, u64, u64, Box<Check>),
}

/// Reads the answer to one request for payloads.
pub struct PayloadReader {
    requested: Vec<Cid>,
    /// Index of the first payload that may come next.
    next: usize,
    max_bytes: u64,
    state: State,
    buffer: Vec<u8>,
}

impl PayloadReader {
    /// A reader at the start of the answer to a request for these payloads, each at most `max_bytes` long.
    pub fn new(requested: Vec<Cid>, max_bytes: u64) -> Self {
        Self { requested, next: 0, max_bytes, state: State::Header, buffer: Vec::new() }
    }

    /// Reads the next bytes, and passes on the parts of payloads in them. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Proof`] if the bytes are not a CAR of the requested payloads in their order, or a payload has another
    /// hash; [`Error::Input`] with [`InputCode::TooLarge`] if one is too long; and what `take` returns. The reader must
    /// not be used after that.
    pub fn feed<E: From<Error>>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(PayloadPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let used = match &mut self.state {
                State::Payload(..) => self.payload(bytes, &mut take)?,
                State::Length if self.buffer.is_empty() => match whole_head(bytes) {
                    Some((cid, size, used)) => {
                        self.begin(&cid, size, &[], &mut take)?;
                        used
                    }
                    None => self.collect(bytes, &mut take)?,
                },
                _ => self.collect(bytes, &mut take)?,
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Checks that the bytes so far end after the header or a whole payload.
    ///
    /// # Errors
    /// [`Error::Proof`] if they do not.
    pub fn check_end(&self) -> Result<()> {
        match self.state {
            State::Length if self.buffer.is_empty() => Ok(()),
            _ => Err(Error::proof("the answer ends inside a payload")),
        }
    }

    /// Whether a part of a payload was passed on but not all.
    pub fn is_in_payload(&self) -> bool {
        matches!(self.state, State::Payload(..))
    }

    /// Collects some bytes of a header, a length or a CID, and returns how many.
    fn collect<E: From<Error>>(
        &mut self,
        bytes: &[u8],
        take: &mut impl FnMut(PayloadPart<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let header = payload_car_header();
        let missing = match self.state {
            State::Header => header.len() - self.buffer.len(),
            State::Head(len, _) => len - self.buffer.len(),
            _ => 1,
        };
        let used = missing.min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..used]);
        match self.state {
            State::Header if !header.starts_with(&self.buffer) => {
                return Err(Error::proof("the answer is not a CAR of payloads").into());
            }
            State::Header if self.buffer.len() == header.len() => self.expect_length(),
            State::Length if self.buffer.last().is_some_and(|&b| b < 0x80) || self.buffer.len() == varint::MAX_LEN => {
                let (len, _) = varint::read(&self.buffer).map_err(|_| malformed())?;
                self.buffer.clear();
                self.state = State::Head(len.min(cid::MAX_LEN as u64) as usize, len);
                if len == 0 {
                    return Err(malformed().into());
                }
            }
            State::Head(all, len) if self.buffer.len() == all => {
                let head = std::mem::take(&mut self.buffer);
                let (cid, first) = Cid::split(&head).map_err(|_| malformed())?;
                self.begin(&cid, len - cid.as_bytes().len() as u64, first, take)?;
            }
            _ => {}
        }
        Ok(used)
    }

    fn expect_length(&mut self) {
        self.buffer.clear();
        self.state = State::Length;
    }

    /// Begins a payload, of which the first bytes are known.
    fn begin<E: From<Error>>(
        &mut self,
        cid: &Cid,
        size: u64,
        first: &[u8],
        take: &mut impl FnMut(PayloadPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(skipped) = self.requested[self.next..].iter().position(|requested| requested == cid) else {
            return Err(Error::proof(format!("{cid} is not a payload that was requested at this place")).into());
        };
        let index = self.next + skipped;
        self.next = index + 1;
        if size > self.max_bytes {
            let what = format!("{cid} has {size} bytes; the limit is {}", self.max_bytes);
            return Err(Error::input(InputCode::TooLarge, what).into());
        }
        self.state = State::Payload(index, size, 0, Box::new(Check::new(cid)));
        if !first.is_empty() || size == 0 {
            self.payload(first, take)?;
        }
        Ok(())
    }

    /// Passes on a part of the payload, and returns its length.
    fn payload<E: From<Error>>(
        &mut self,
        bytes: &[u8],
        take: &mut impl FnMut(PayloadPart<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let State::Payload(index, size, start, mut check) = std::mem::replace(&mut self.state, State::Length) else {
            return Ok(0);
        };
        let left = size - start;
        let bytes = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        let is_last = bytes.len() as u64 == left;
        let cid = *check.cid();
        // A payload in one part needs no incremental state.
        let is_match = if is_last && start == 0 {
            payload::matches(&cid, bytes)
        } else {
            check.update(bytes);
            if is_last {
                check.is_match()
            } else {
                self.state = State::Payload(index, size, start + bytes.len() as u64, check);
                true
            }
        };
        if !is_match {
            return Err(Error::proof(format!("the bytes of {cid} have another hash")).into());
        }
        take(PayloadPart { index, size, start, bytes, is_last })?;
        Ok(bytes.len())
    }
}

/// The head of a block at the start of `bytes`, if all of it is there: CID, length of the payload, length of the head.
fn whole_head(bytes: &[u8]) -> Option<(Cid, u64, usize)> {
    let (len, n) = varint::read(bytes).ok()?;
    let (cid, _) = Cid::split(&bytes[n..]).ok()?;
    let named = cid.as_bytes().len();
    Some((cid, len.checked_sub(named as u64)?, n + named))
}

fn malformed() -> Error {
    Error::proof("the answer is not a CAR")
}

#[cfg(test)]
#[path = "../../tests/unit/car_payloads.rs"]
mod tests;
