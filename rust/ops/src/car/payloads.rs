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

    /// The payload of which a part was passed on but not all: its index, and the length of that part.
    pub fn unfinished(&self) -> Option<(usize, u64)> {
        match self.state {
            State::Payload(index, _, start, _) => Some((index, start)),
            _ => None,
        }
    }

    /// Forgets the part of the [unfinished](Self::unfinished) payload: its first byte is read next.
    pub fn restart_unfinished(&mut self) {
        if let State::Payload(_, _, start, check) = &mut self.state {
            *start = 0;
            **check = Check::new(&{ *check.cid() });
        }
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
mod tests {
    use coregw_core::codec::Codec;
    use coregw_core::payload::Function;

    use super::super::format::block_head;
    use super::*;

    fn cid(data: &[u8]) -> Cid {
        payload::cid(data, Codec::RAW, Function::Sha2_256).expect("a hash takes any length")
    }

    fn car(blocks: &[(Cid, &[u8])]) -> Vec<u8> {
        let blocks = blocks.iter().flat_map(|(cid, data)| [block_head(cid, data.len() as u64), data.to_vec()].concat());
        payload_car_header().iter().copied().chain(blocks).collect()
    }

    /// The payloads of an answer that comes in chunks of this size: their indices and bytes.
    fn read(requested: &[Cid], answer: &[u8], chunk: usize) -> Result<Vec<(usize, Vec<u8>)>> {
        let mut reader = PayloadReader::new(requested.to_vec(), 1 << 20);
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for bytes in answer.chunks(chunk) {
            reader.feed(bytes, |part| -> Result<()> {
                assert_eq!(part.start, parts.len() as u64);
                assert!(!part.bytes.is_empty() || part.size == 0);
                parts.extend_from_slice(part.bytes);
                assert_eq!(part.is_last, part.size == parts.len() as u64);
                if part.is_last {
                    whole.push((part.index, std::mem::take(&mut parts)));
                }
                Ok(())
            })?;
        }
        reader.check_end()?;
        Ok(whole)
    }

    #[test]
    fn payloads_are_read_from_chunks_of_any_size() {
        let datas: Vec<Vec<u8>> = [0, 1, 2, 200, 5000, 0, 92].map(|len| vec![len as u8; len]).to_vec();
        let mut requested: Vec<Cid> = datas.iter().map(|data| cid(data)).collect();
        requested[2] = payload::cid(&datas[2], Codec::RAW, Function::Identity).expect("short");
        let all: Vec<_> = requested.iter().copied().zip(datas.iter().map(Vec::as_slice)).collect();
        let without: Vec<_> = [1, 2, 4, 6].map(|index| all[index]).to_vec();
        for chunk in [1, 2, 3, 36, 37, 40, 100, 4999, 10_000] {
            let expected: Vec<_> = datas.iter().cloned().enumerate().collect();
            assert_eq!(read(&requested, &car(&all), chunk), Ok(expected.clone()), "{chunk}");
            let expected: Vec<_> = [1, 2, 4, 6].map(|index| expected[index].clone()).to_vec();
            assert_eq!(read(&requested, &car(&without), chunk), Ok(expected), "{chunk}");
            assert_eq!(read(&requested, &car(&[]), chunk), Ok(vec![]));
            assert_eq!(read(&requested, &car(&all[..1]), chunk), Ok(vec![(0, vec![])]), "an empty payload at the end");
        }
    }

    #[test]
    fn an_unfinished_payload_is_continued_by_its_bytes_alone() {
        let data: Vec<u8> = (0..5000).map(|index| (index % 251) as u8).collect();
        let answer = car(&[(cid(b"a"), b"a"), (cid(&data), &data)]);
        for restarts in [false, true] {
            let mut reader = PayloadReader::new(vec![cid(b"a"), cid(&data)], 1 << 20);
            let mut ends = vec![];
            let mut take = |part: PayloadPart<'_>| -> Result<()> {
                ends.push((part.index, part.start + part.bytes.len() as u64, part.is_last));
                Ok(())
            };
            reader.feed(&answer[..answer.len() - 4000], &mut take).expect("valid");
            assert_eq!(reader.unfinished(), Some((1, 1000)));
            let rest = if restarts { &data[..] } else { &data[1000..] };
            if restarts {
                reader.restart_unfinished();
                assert_eq!(reader.unfinished(), Some((1, 0)));
            }
            reader.feed(&rest[..500], &mut take).expect("valid");
            reader.feed(&rest[500..], &mut take).expect("valid");
            assert_eq!((reader.unfinished(), reader.check_end()), (None, Ok(())));
            assert_eq!(ends.last(), Some(&(1, 5000, true)));
        }
    }

    #[test]
    fn every_other_answer_is_refused() {
        let (a, b) = (&b"first payload"[..], &b"second payload"[..]);
        let requested = [cid(a), cid(b)];
        let good = car(&[(cid(a), a), (cid(b), b)]);
        let refused = [
            car(&[(cid(b), b), (cid(a), a)]),
            car(&[(cid(a), a), (cid(a), a)]),
            car(&[(cid(a), b)]),
            car(&[(cid(a), &a[1..])]),
            car(&[(cid(a), &[])]),
            car(&[(cid(b"another"), b"another")]),
            [payload_car_header(), &[0]].concat(),
            [payload_car_header(), &[3, 1, 2, 3]].concat(),
            [payload_car_header(), &[0xff; 20]].concat(),
            [payload_car_header(), &[0x80]].concat(),
            [&good[..], &good[..]].concat(),
        ];
        for chunk in [1, 7, 1000] {
            for answer in &refused {
                assert!(matches!(read(&requested, answer, chunk), Err(Error::Proof { .. })), "{answer:?}");
            }
            for cut in 0..good.len() {
                let whole = [payload_car_header().len(), payload_car_header().len() + 1 + 36 + a.len()];
                assert_eq!(read(&requested, &good[..cut], chunk).is_ok(), whole.contains(&cut), "{cut}");
                let mut other = good.clone();
                other[cut] ^= 1;
                assert!(read(&requested, &other, chunk).is_err(), "{cut}");
            }
            let largest = vec![0; 1 << 20];
            let whole = read(&[cid(&largest)], &car(&[(cid(&largest), &largest)]), chunk.max(1000));
            assert_eq!(whole.map(|payloads| payloads[0].1.len()), Ok(1 << 20));
            let large = vec![0; (1 << 20) + 1];
            let refused = read(&[cid(&large)], &car(&[(cid(&large), &large)]), chunk.max(1000));
            assert!(matches!(refused, Err(Error::Input { code: InputCode::TooLarge, .. })));
        }
    }
}
