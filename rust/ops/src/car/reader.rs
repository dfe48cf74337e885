//! Push parser for the bytes of a CARv1 or CARv2, in chunks of any size: frames, CIDs, and the hash of every block. The
//! index of a CARv2 is ignored.
//!
//! Keeps where each block is, but not its bytes. Whether the nodes form trees is checked in `check`.

use coregw_core::cid::{self, Cid, RootCid};
use coregw_core::internals::block::{Block, MAX_BLOCK};
use coregw_core::payload::{self, Check};
use coregw_core::{Error, InputCode, Result, varint};

use super::export::BlockPlace;
use super::format::{self, PRAGMA, V2_HEADER_BYTES, names_no_root, read_header, split_cid};
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

/// What is read next. Everything but payloads is collected in the buffer.
enum ReaderState {
    /// The length of the header, or of the next block.
    Length,
    /// This many bytes of header.
    Header(usize),
    /// What follows the pragma of a CARv2.
    SecondHeader,
    /// This many bytes before the CARv1 in a CARv2.
    Padding(u64),
    /// The first bytes of a block, which contain its CID: their number, and the length of the block.
    Head(usize, u64),
    /// A tree node with its CID: its name, the length of the CID, and the length of both.
    Node(RootCid, usize, usize),
    /// The remaining bytes of a payload, and where it starts.
    Payload(Box<Check>, u64, u64),
    /// What follows the CARv1 in a CARv2.
    Index,
}

/// Reads the bytes of one CAR.
pub struct CarReader {
    limits: CarLimits,
    state: ReaderState,
    buffer: Vec<u8>,
    roots: Option<Vec<Cid>>,
    index: Index,
    /// Where the CARv1 in a CARv2 ends; `None` for a CARv1.
    end: Option<u64>,
    /// Bytes read so far.
    at: u64,
    /// Whole blocks read so far.
    blocks: u32,
    /// The last of them.
    last: Option<Cid>,
    /// Where it ends, or the header; 0 before that.
    whole: u64,
    /// Where the length of the current block, or of the header, starts.
    start: u64,
    /// Where the current block starts, after its length.
    body: u64,
}

impl CarReader {
    /// A reader at the start of a CAR.
    pub fn new(limits: CarLimits) -> Self {
        Self {
            limits,
            state: ReaderState::Length,
            buffer: Vec::new(),
            roots: None,
            index: Index::default(),
            end: None,
            at: 0,
            blocks: 0,
            last: None,
            whole: 0,
            start: 0,
            body: 0,
        }
    }

    /// The roots that the header names, once it is read; none if it names only the empty payload.
    pub fn roots(&self) -> Option<&[Cid]> {
        self.roots.as_deref()
    }

    /// The version of the CAR, 1 or 2, once its header is read.
    pub fn version(&self) -> Option<u8> {
        self.roots.as_ref().map(|_| if self.end.is_some() { 2 } else { 1 })
    }

    /// The number of complete blocks so far.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// How many of them are tree nodes.
    pub fn nodes(&self) -> usize {
        self.index.nodes.len()
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// The bytes of memory that the positions of the blocks take. O(1).
    pub fn held_bytes(&self) -> usize {
        self.index.held_bytes()
    }

    /// Reads the next bytes. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Input`], naming the block and the fault. The reader must not be used after that.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let used = self.take(bytes)?;
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// The last complete block, and which of those with its CID it is, from 1. O(blocks).
    ///
    /// A payload with an identity CID, which needs no block, is counted once.
    pub fn last_block(&self) -> Option<BlockPlace> {
        let cid = self.last?;
        let occurrence = match cid.root() {
            Some(root) => self.index.nodes.iter().filter(|node| node.root() == root).count(),
            None => {
                let whole = self.index.payloads.iter().filter(|record| record.offset < self.whole);
                let key = payload_key(&cid);
                whole.filter(|record| record.key == key).count().max(1)
            }
        };
        Some(BlockPlace { cid, occurrence: occurrence as u64 })
    }

    /// The payload of which the bytes so far have a part, but not the end, and where it starts.
    pub fn unfinished(&self) -> Option<(&Cid, u64)> {
        match &self.state {
            ReaderState::Payload(check, _, start) => Some((check.cid(), *start)),
            _ => None,
        }
    }

    /// Forgets the part of the [unfinished](Self::unfinished) payload: its first byte is read next.
    pub fn restart_unfinished(&mut self) {
        if let ReaderState::Payload(check, left, start) = &mut self.state {
            **check = Check::new(&{ *check.cid() });
            *left += self.at - *start;
            self.at = *start;
        }
    }

    /// Forgets what follows the last complete block, also after an error, and returns where it ends: the length of
    /// another block is read next. Of a CARv2, it forgets everything.
    pub fn rewind(&mut self) -> u64 {
        if self.end.is_some() {
            *self = Self::new(self.limits);
        }
        self.index.payloads.truncate(self.index.payloads.partition_point(|record| record.offset < self.whole));
        self.buffer.clear();
        self.state = ReaderState::Length;
        self.at = self.whole;
        self.whole
    }

    /// Checks that the bytes so far end after a complete block, or after the header.
    ///
    /// # Errors
    /// [`Error::Input`] if they do not.
    pub fn check_end(&self) -> Result<()> {
        match (&self.state, &self.roots) {
            (ReaderState::Length, Some(_)) if self.buffer.is_empty() && self.end.is_none() => Ok(()),
            (ReaderState::Index, _) => Ok(()),
            _ => Err(self.refuse(&format!("the CAR ends inside it, after {} bytes", self.at))),
        }
    }

    /// Ends the CAR: returns its roots and where its blocks are. O(n log n) of blocks.
    ///
    /// # Errors
    /// [`Error::Input`] if the bytes end inside the header or a block.
    pub(super) fn finish(mut self) -> Result<(Vec<Cid>, Index)> {
        self.check_end()?;
        self.index.sort();
        Ok((self.roots.unwrap_or_default(), self.index))
    }

    /// Reads some of `bytes`, at least one, and returns how many.
    fn take(&mut self, bytes: &[u8]) -> Result<usize> {
        let used = match &mut self.state {
            ReaderState::Length => {
                if self.buffer.is_empty() {
                    self.start = self.at;
                }
                self.buffer.push(bytes[0]);
                1
            }
            ReaderState::SecondHeader => self.collect(bytes, V2_HEADER_BYTES),
            ReaderState::Padding(left) => {
                let used = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= used as u64;
                used
            }
            ReaderState::Index => bytes.len(),
            ReaderState::Header(len) | ReaderState::Head(len, _) | ReaderState::Node(.., len) => {
                let len = *len;
                self.collect(bytes, len)
            }
            ReaderState::Payload(check, left, _) => {
                let used = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                check.update(&bytes[..used]);
                *left -= used as u64;
                used
            }
        };
        self.at += used as u64;
        self.advance()?;
        Ok(used)
    }

    /// Collects bytes until the buffer has `len` of them, and returns how many.
    fn collect(&mut self, bytes: &[u8], len: usize) -> usize {
        let used = bytes.len().min(len - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..used]);
        used
    }

    /// Enters the next state for as long as the current one is complete.
    fn advance(&mut self) -> Result<()> {
        loop {
            let len = self.buffer.len();
            match &self.state {
                ReaderState::Length if self.buffer.last().is_some_and(|&b| b < 0x80) || len == varint::MAX_LEN => {
                    self.length()?;
                }
                ReaderState::Header(all) if len == *all => self.header()?,
                ReaderState::SecondHeader if len == V2_HEADER_BYTES => self.second_header()?,
                ReaderState::Padding(0) => self.next(),
                ReaderState::Head(all, _) if len == *all => self.head()?,
                ReaderState::Node(.., all) if len == *all => self.node()?,
                ReaderState::Payload(_, 0, _) => self.payload()?,
                _ => return Ok(()),
            }
        }
    }

    fn length(&mut self) -> Result<()> {
        let (len, _) = varint::read(&self.buffer).map_err(|why| self.refuse(&format!("its length: {why}")))?;
        self.buffer.clear();
        self.body = self.at;
        self.state = match &self.roots {
            _ if len == 0 => return Err(self.refuse("it has no bytes")),
            _ if self.end.is_some_and(|end| len > end.saturating_sub(self.at)) => {
                return Err(self.refuse("it is longer than what is left of the CARv1 in the CARv2"));
            }
            None if len > MAX_HEADER_BYTES => return Err(self.refuse("it is longer than 64 KiB")),
            None => ReaderState::Header(len as usize),
            Some(_) if self.blocks == self.limits.blocks => {
                return Err(too_large(format!("the CAR has more than {} blocks", self.blocks)));
            }
            Some(_) => ReaderState::Head(len.min(cid::MAX_LEN as u64) as usize, len),
        };
        Ok(())
    }

    fn header(&mut self) -> Result<()> {
        if self.end.is_none() && self.buffer == PRAGMA[1..] {
            self.buffer.clear();
            self.state = ReaderState::SecondHeader;
            return Ok(());
        }
        let cids = read_header(&self.buffer).map_err(|why| self.refuse(why))?;
        self.roots = Some(if names_no_root(&cids) { Vec::new() } else { cids });
        self.next();
        Ok(())
    }

    fn second_header(&mut self) -> Result<()> {
        let bytes = self.buffer.first_chunk().expect("the buffer is that long");
        let (begin, end) = format::read_v2_header(bytes).map_err(|why| self.refuse(why))?;
        self.end = Some(end);
        self.buffer.clear();
        self.state = ReaderState::Padding(begin - self.at);
        Ok(())
    }

    /// The first bytes of a block are complete.
    fn head(&mut self) -> Result<()> {
        let ReaderState::Head(_, len) = self.state else {
            return Ok(());
        };
        let (cid, named) = split_cid(&self.buffer).map_err(|why| self.refuse(&format!("its CID: {why}")))?;
        let rest = &self.buffer[named..];
        let data = len - named as u64;
        self.state = match cid.root() {
            Some(_) if data > MAX_BLOCK as u64 => {
                return Err(self.refuse(&format!("{cid} has {data} bytes; no tree node has more than {MAX_BLOCK}")));
            }
            Some(root) => ReaderState::Node(root, named, len as usize),
            // The index keeps the length of CID and data in 32 bits.
            None if len > u64::from(u32::MAX) || data > u64::from(self.limits.payload_bytes) => {
                let limit = self.limits.payload_bytes.min(u32::MAX - named as u32);
                let why = format!("{cid} has {data} bytes; {limit} is the limit");
                return Err(too_large(format!("{}: {why}", self.place())));
            }
            None => {
                let mut check = Check::new(&cid);
                check.update(rest);
                // The payload of an identity CID is held always, so it is not stored.
                if cid.identity().is_none() {
                    self.index.payloads.push(PayloadRecord::new(&cid, self.body, len as u32));
                }
                ReaderState::Payload(Box::new(check), data - rest.len() as u64, self.body + named as u64)
            }
        };
        Ok(())
    }

    /// A tree node is complete.
    fn node(&mut self) -> Result<()> {
        let ReaderState::Node(root, named, len) = self.state else {
            return Ok(());
        };
        let data = &self.buffer[named..];
        if !payload::matches(&root.cid(), data) {
            return Err(self.refuse(&format!("{root}: its bytes have another hash")));
        }
        if let Err(why) = Block::read(root.kind, data) {
            return Err(self.refuse(&format!("{root}: {why}")));
        }
        self.index.nodes.push(NodeRecord::new(&root, self.body, self.blocks, len as u16));
        self.block(root.cid());
        Ok(())
    }

    /// A payload is complete.
    fn payload(&mut self) -> Result<()> {
        if let ReaderState::Payload(check, ..) = std::mem::replace(&mut self.state, ReaderState::Length) {
            let cid = *check.cid();
            if !check.is_match() {
                return Err(self.refuse(&format!("{cid}: its bytes have another hash")));
            }
            self.block(cid);
        }
        Ok(())
    }

    /// A block is complete.
    fn block(&mut self, cid: Cid) {
        self.blocks += 1;
        self.last = Some(cid);
        self.next();
    }

    fn next(&mut self) {
        self.buffer.clear();
        self.whole = self.at;
        self.state = if self.end == Some(self.at) { ReaderState::Index } else { ReaderState::Length };
    }

    fn place(&self) -> String {
        match self.roots {
            None => "the header".to_owned(),
            Some(_) => format!("block {} at byte {}", self.blocks, self.start),
        }
    }

    fn refuse(&self, why: &str) -> Error {
        Error::request(format!("{}: {why}", self.place()))
    }
}

fn too_large(what: String) -> Error {
    Error::input(InputCode::TooLarge, what)
}
