//! The bytes of a CARv1 or CARv2, in chunks of any size. The index of a CARv2 is ignored.
//!
//! Keeps where each block is, but not its bytes. Whether the nodes form trees is checked in `check`.

use coregw_core::cid::{Cid, RootCid};
use coregw_core::internals::block::{Block, MAX_BLOCK};
use coregw_core::payload;
use coregw_core::{Error, InputCode, Result};

use super::export::BlockPlace;
use super::format::{self, PRAGMA, V2_HEADER_BYTES, names_no_root, read_header};
use super::frames::{FrameParser, Frames, Next, Part, Payload, Position};
use super::index::{Index, NodeRecord, PayloadRecord, payload_key};

/// The limit on the length of a header: about 1,500 roots.
const MAX_HEADER_BYTES: u64 = 64 << 10;

/// The limits of an imported CAR.
#[derive(Debug, Clone, Copy)]
pub struct CarLimits {
    /// Bytes of one payload; below 4 GiB.
    pub payload_bytes: u32,
    /// Number of blocks, repeated ones included; each takes about 60 bytes of memory.
    pub blocks: u32,
}

/// What is collected.
enum Collected {
    /// The header.
    Header,
    /// What follows the pragma of a CARv2.
    SecondHeader,
    /// A tree node.
    Node(RootCid),
}

/// Reads the bytes of one CAR.
pub struct CarReader {
    parser: FrameParser,
    car: Car,
}

/// What is known of a CAR.
struct Car {
    limits: CarLimits,
    collected: Collected,
    roots: Option<Vec<Cid>>,
    index: Index,
    /// Where the CARv1 in a CARv2 ends; `None` for a CARv1.
    end: Option<u64>,
    /// Whole blocks read so far.
    blocks: u32,
    /// The last of them.
    last: Option<Cid>,
    /// The payload that is being read.
    payload: Option<Cid>,
    /// Where the last whole block ends, or the header; 0 before that.
    whole: u64,
}

impl CarReader {
    /// A reader at the start of a CAR.
    pub fn new(limits: CarLimits) -> Self {
        let (collected, index) = (Collected::Header, Index::default());
        let car =
            Car { limits, collected, roots: None, index, end: None, blocks: 0, last: None, payload: None, whole: 0 };
        Self { parser: FrameParser::new(), car }
    }

    /// The roots that the header names, once it is read; none if it names only the empty payload.
    pub fn roots(&self) -> Option<&[Cid]> {
        self.car.roots.as_deref()
    }

    /// The version of the CAR, 1 or 2, once its header is read.
    pub fn version(&self) -> Option<u8> {
        self.car.roots.as_ref().map(|_| if self.car.end.is_some() { 2 } else { 1 })
    }

    /// The number of complete blocks so far.
    pub fn blocks(&self) -> u32 {
        self.car.blocks
    }

    /// How many of them are tree nodes.
    pub fn nodes(&self) -> usize {
        self.car.index.nodes.len()
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.parser.place().at
    }

    /// The bytes of memory that the positions of the blocks take. O(1).
    pub fn held_bytes(&self) -> usize {
        self.car.index.held_bytes()
    }

    /// Reads the next bytes. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Input`], naming the block and the fault. The reader must not be used after that, unless it is
    /// [rewound](Self::rewind).
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.parser.feed(bytes, &mut self.car)
    }

    /// The last complete block, and which of those with its CID it is, from 1. O(blocks).
    ///
    /// A payload with an identity CID, which needs no block, is counted once.
    pub fn last_block(&self) -> Option<BlockPlace> {
        let Car { index, whole, .. } = &self.car;
        let cid = self.car.last?;
        let occurrence = match cid.root() {
            Some(root) => index.nodes.iter().filter(|node| node.root() == root).count(),
            None => {
                let records = index.payloads.iter().filter(|record| record.offset < *whole);
                let key = payload_key(&cid);
                records.filter(|record| record.key == key).count().max(1)
            }
        };
        Some(BlockPlace { cid, occurrence: occurrence as u64 })
    }

    /// The payload of which the bytes so far have a part, but not the end, and where it starts.
    pub fn unfinished(&self) -> Option<(&Cid, u64)> {
        self.parser.unfinished().map(|(cid, done)| (cid, self.bytes() - done))
    }

    /// Forgets the part of the [unfinished](Self::unfinished) payload: its first byte is read next.
    pub fn restart_unfinished(&mut self) {
        self.parser.restart_unfinished();
    }

    /// Forgets what follows the last complete block, also after an error, and returns where it ends: the length of
    /// another block is read next. Of a CARv2, it forgets everything.
    pub fn rewind(&mut self) -> u64 {
        if self.car.end.is_some() {
            *self = Self::new(self.car.limits);
        }
        let Car { index, whole, collected, .. } = &mut self.car;
        index.payloads.truncate(index.payloads.partition_point(|record| record.offset < *whole));
        *collected = Collected::Header;
        self.parser.rewind(*whole);
        *whole
    }

    /// Checks that the bytes so far end after a complete block, or after the header.
    ///
    /// # Errors
    /// [`Error::Input`] if they do not.
    pub fn check_end(&self) -> Result<()> {
        let is_whole = match self.car.end {
            None => self.car.roots.is_some() && self.parser.is_between(),
            Some(end) => self.car.whole == end,
        };
        if is_whole {
            return Ok(());
        }
        let place = self.parser.place();
        Err(self.car.refuse(&format!("the CAR ends inside it, after {} bytes", place.at), place))
    }

    /// Ends the CAR: returns its roots and where its blocks are. O(n log n) of blocks.
    ///
    /// # Errors
    /// [`Error::Input`] if the bytes end inside the header or a block.
    pub(super) fn finish(mut self) -> Result<(Vec<Cid>, Index)> {
        self.check_end()?;
        self.car.index.sort();
        Ok((self.car.roots.unwrap_or_default(), self.car.index))
    }
}

impl Frames<Error> for Car {
    fn frame(&mut self, len: u64, place: Position) -> Result<Next> {
        match &self.roots {
            _ if self.end.is_some_and(|end| len > end.saturating_sub(place.at)) => {
                Err(self.refuse("it is longer than what is left of the CARv1 in the CARv2", place))
            }
            None if len > MAX_HEADER_BYTES => Err(self.refuse("it is longer than 64 KiB", place)),
            None => Ok(Next::Bytes(len as usize)),
            Some(_) if self.blocks == self.limits.blocks => {
                Err(too_large(format!("the CAR has more than {} blocks", self.blocks)))
            }
            Some(_) => Ok(Next::Head(len)),
        }
    }

    fn bytes(&mut self, bytes: &[u8], place: Position) -> Result<Next> {
        match std::mem::replace(&mut self.collected, Collected::Header) {
            Collected::Header => self.header(bytes, place),
            Collected::SecondHeader => {
                let bytes = bytes.first_chunk().expect("they are as many as were asked for");
                let (begin, end) = format::read_v2_header(bytes).map_err(|why| self.refuse(why, place))?;
                self.end = Some(end);
                Ok(if begin == place.at { Next::Length } else { Next::Skipped(begin - place.at) })
            }
            Collected::Node(root) => self.node(&root, bytes, place),
        }
    }

    fn block(&mut self, cid: &Cid, size: u64, place: Position) -> Result<Next> {
        let named = place.at - place.body;
        match cid.root() {
            Some(_) if size > MAX_BLOCK as u64 => {
                Err(self.refuse(&format!("{cid} has {size} bytes; no tree node has more than {MAX_BLOCK}"), place))
            }
            Some(root) => {
                self.collected = Collected::Node(root);
                Ok(Next::Bytes(size as usize))
            }
            // The index keeps the length of CID and data in 32 bits.
            None if named + size > u64::from(u32::MAX) || size > u64::from(self.limits.payload_bytes) => {
                let limit = self.limits.payload_bytes.min(u32::MAX - named as u32);
                let why = format!("{cid} has {size} bytes; {limit} is the limit");
                Err(too_large(format!("{}: {why}", self.name(place))))
            }
            None => {
                // The payload of an identity CID is held always, so it is not stored.
                if cid.identity().is_none() {
                    self.index.payloads.push(PayloadRecord::new(cid, place.body, (named + size) as u32));
                }
                self.payload = Some(*cid);
                Ok(Next::Payload(Payload::new(cid, size)))
            }
        }
    }

    fn part(&mut self, part: Part<'_>, place: Position) -> Result<Next> {
        match self.payload.take_if(|_| part.is_last) {
            Some(cid) => Ok(self.end_block(cid, place)),
            None => Ok(Next::Length),
        }
    }

    fn refuse(&self, why: &str, place: Position) -> Error {
        Error::request(format!("{}: {why}", self.name(place)))
    }
}

impl Car {
    fn header(&mut self, bytes: &[u8], place: Position) -> Result<Next> {
        if self.end.is_none() && *bytes == PRAGMA[1..] {
            self.collected = Collected::SecondHeader;
            return Ok(Next::Bytes(V2_HEADER_BYTES));
        }
        let cids = read_header(bytes).map_err(|why| self.refuse(why, place))?;
        self.roots = Some(if names_no_root(&cids) { Vec::new() } else { cids });
        Ok(self.next(place))
    }

    /// A tree node is complete.
    fn node(&mut self, root: &RootCid, bytes: &[u8], place: Position) -> Result<Next> {
        if !payload::matches(&root.cid(), bytes) {
            return Err(self.refuse(&format!("{root}: its bytes have another hash"), place));
        }
        if let Err(why) = Block::read(root.kind, bytes) {
            return Err(self.refuse(&format!("{root}: {why}"), place));
        }
        self.index.nodes.push(NodeRecord::new(root, place.body, self.blocks, (place.at - place.body) as u16));
        Ok(self.end_block(root.cid(), place))
    }

    /// A block is complete.
    fn end_block(&mut self, cid: Cid, place: Position) -> Next {
        self.blocks += 1;
        self.last = Some(cid);
        self.next(place)
    }

    /// The header or a block is complete.
    fn next(&mut self, place: Position) -> Next {
        self.whole = place.at;
        if self.end == Some(place.at) { Next::Skipped(u64::MAX) } else { Next::Length }
    }

    /// The name of the current frame in messages.
    fn name(&self, place: Position) -> String {
        match self.roots {
            None => "the header".to_owned(),
            Some(_) => format!("block {} at byte {}", self.blocks, place.start),
        }
    }
}

fn too_large(what: String) -> Error {
    Error::input(InputCode::TooLarge, what)
}
