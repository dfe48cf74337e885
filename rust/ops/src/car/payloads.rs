//! The payloads that a request has named, read from a CAR in chunks of any size.
//!
//! ```text
//! | header: bafkqaaa | head of block | bytes | head of block | bytes | ...
//!                      one of the requested CIDs, in their order; some may be left out
//! ```
//!
//! Keeps no bytes of payloads: each part is passed on as it comes, and the last one of a payload only if the whole has
//! its CID's hash.

use coregw_core::{Cid, Error, InputCode, Result, varint};

use super::format::payload_car_header;
use super::frames::{FrameParser, Frames, Next, Part, Payload, Position};

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

/// Reads the answer to one request for payloads.
pub struct PayloadReader {
    parser: FrameParser,
    answer: Answer,
}

/// What an answer may have.
struct Answer {
    requested: Vec<Cid>,
    max_bytes: u64,
    /// Whether the header was read.
    is_begun: bool,
    /// Index of the first payload that may come next; the current one precedes it.
    next: usize,
}

impl PayloadReader {
    /// A reader at the start of the answer to a request for these payloads, each at most `max_bytes` long.
    pub fn new(requested: Vec<Cid>, max_bytes: u64) -> Self {
        Self { parser: FrameParser::new(), answer: Answer { requested, max_bytes, is_begun: false, next: 0 } }
    }

    /// Reads the next bytes, and passes on the parts of payloads in them. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Proof`] if the bytes are not a CAR of the requested payloads in their order, or a payload has another
    /// hash; [`Error::Input`] with [`InputCode::TooLarge`] if one is too long; and what `take` returns. The reader must
    /// not be used after that.
    pub fn feed<E: From<Error>>(
        &mut self,
        bytes: &[u8],
        take: impl FnMut(PayloadPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.parser.feed(bytes, &mut Taking { answer: &mut self.answer, take })
    }

    /// Checks that the bytes so far end after the header or a whole payload.
    ///
    /// # Errors
    /// [`Error::Proof`] if they do not.
    pub fn check_end(&self) -> Result<()> {
        match self.answer.is_begun && self.parser.is_between() {
            true => Ok(()),
            false => Err(Error::proof("the answer ends inside a payload")),
        }
    }

    /// Whether a part of a payload was passed on but not all.
    pub fn is_in_payload(&self) -> bool {
        self.parser.unfinished().is_some()
    }
}

/// An answer whose parts are passed on.
struct Taking<'a, F> {
    answer: &'a mut Answer,
    take: F,
}

impl<E: From<Error>, F: FnMut(PayloadPart<'_>) -> Result<(), E>> Frames<E> for Taking<'_, F> {
    fn frame(&mut self, len: u64, place: Position) -> Result<Next, E> {
        if self.answer.is_begun {
            return Ok(Next::Head(len));
        }
        match payload_car_header().len() as u64 == place.at + len {
            true => Ok(Next::Bytes(len as usize)),
            false => Err(other_header().into()),
        }
    }

    fn bytes(&mut self, bytes: &[u8], _: Position) -> Result<Next, E> {
        let (_, len) = varint::read(payload_car_header()).expect("it begins with its length");
        if *bytes != payload_car_header()[len..] {
            return Err(other_header().into());
        }
        self.answer.is_begun = true;
        Ok(Next::Length)
    }

    fn block(&mut self, cid: &Cid, size: u64, _: Position) -> Result<Next, E> {
        let Answer { requested, max_bytes, next, .. } = &mut *self.answer;
        let Some(skipped) = requested[*next..].iter().position(|requested| requested == cid) else {
            return Err(Error::proof(format!("{cid} is not a payload that was requested at this place")).into());
        };
        *next += skipped + 1;
        if size > *max_bytes {
            let what = format!("{cid} has {size} bytes; the limit is {max_bytes}");
            return Err(Error::input(InputCode::TooLarge, what).into());
        }
        Ok(Next::Payload(Payload::new(cid, size)))
    }

    fn part(&mut self, Part { size, start, bytes, is_last }: Part<'_>, _: Position) -> Result<Next, E> {
        (self.take)(PayloadPart { index: self.answer.next - 1, size, start, bytes, is_last })?;
        Ok(Next::Length)
    }

    fn refuse(&self, why: &str, _: Position) -> Error {
        Error::proof(format!("a block of the answer: {why}"))
    }
}

fn other_header() -> Error {
    Error::proof("the answer is not a CAR of payloads")
}

#[cfg(test)]
#[path = "../../tests/unit/car_payloads.rs"]
mod tests;
