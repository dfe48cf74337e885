//! Reading a CAR as its bytes come, in pieces of any size: frames, CIDs, and the hash of every block.
//!
//! What is kept is where each block lies, nothing of what it holds. Leaves out whether the nodes make trees.

use super::archive::Archive;
use super::index::{Index, NodeRecord, PayloadRecord};
use super::read_header;
use coregw_core::cid::{self, Cid, RootCid};
use coregw_core::internals::block::{Block, MAX_BLOCK};
use coregw_core::payload::{self, Check};
use coregw_core::varint;
use coregw_core::{Error, InputCode, Result};

/// The longest header, in bytes: some 1,500 roots.
const MAX_HEADER: u64 = 64 << 10;

/// What a CAR may be at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a payload; below 4 GiB.
    pub payload_bytes: u32,
    /// Number of blocks, those that come again included; each takes some 60 bytes of memory.
    pub blocks: u32,
}

/// What is read next, into the buffer but for payloads.
enum State {
    /// The length of the header, or of the next block.
    Length,
    /// This many bytes of header.
    Header(usize),
    /// The first bytes of a block, its CID among them: how many they are, and how many the block's.
    Head(usize, u64),
    /// A tree node with its CID: its name, the CID's length, and that of both.
    Node(RootCid, usize, usize),
    /// The rest of a payload.
    Payload(Box<Check>, u64),
}

/// Takes a CAR in.
pub struct Reader {
    limits: Limits,
    state: State,
    buffer: Vec<u8>,
    roots: Option<Vec<RootCid>>,
    index: Index,
    /// Bytes that were taken.
    at: u64,
    /// Whole blocks.
    blocks: u32,
    /// Where the block that is read, or the header, begins with its length.
    start: u64,
    /// Where it goes on behind that.
    body: u64,
}

impl Reader {
    /// A reader that has seen no bytes.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Length,
            buffer: Vec::new(),
            roots: None,
            index: Index::default(),
            at: 0,
            blocks: 0,
            start: 0,
            body: 0,
        }
    }

    /// The roots that the header names, once it was read.
    pub fn roots(&self) -> Option<&[RootCid]> {
        self.roots.as_deref()
    }

    /// Number of whole blocks so far.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Takes the next bytes. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Input`] that names the block and says what is wrong; the reader is of no use then.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let used = self.take(bytes)?;
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Ends the CAR: all blocks have the hashes that their CIDs say.
    ///
    /// # Errors
    /// [`Error::Input`] if the bytes end inside the header or a block.
    pub fn finish(mut self) -> Result<Archive> {
        match (&self.state, self.roots.take()) {
            (State::Length, Some(roots)) if self.buffer.is_empty() => {
                self.index.sort();
                Ok(Archive::new(roots, self.index))
            }
            (_, roots) => {
                self.roots = roots;
                Err(self.refuse(&format!("the CAR ends inside it, after {} bytes", self.at)))
            }
        }
    }

    /// Takes some of `bytes`, at least one, and says how many.
    fn take(&mut self, bytes: &[u8]) -> Result<usize> {
        let used = match &mut self.state {
            State::Length => {
                if self.buffer.is_empty() {
                    self.start = self.at;
                }
                self.buffer.push(bytes[0]);
                1
            }
            State::Header(len) | State::Head(len, _) | State::Node(.., len) => {
                let used = bytes.len().min(*len - self.buffer.len());
                self.buffer.extend_from_slice(&bytes[..used]);
                used
            }
            State::Payload(check, left) => {
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

    /// Goes on to the next state, as long as what the last one waits for is there.
    fn advance(&mut self) -> Result<()> {
        loop {
            let len = self.buffer.len();
            match &self.state {
                State::Length if self.buffer.last().is_some_and(|&b| b < 0x80) || len == varint::MAX_LEN => {
                    self.length()?;
                }
                State::Header(all) if len == *all => self.header()?,
                State::Head(all, _) if len == *all => self.head()?,
                State::Node(.., all) if len == *all => self.node()?,
                State::Payload(_, 0) => self.payload()?,
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
            None if len > MAX_HEADER => return Err(self.refuse("it is longer than 64 KiB")),
            None => State::Header(len as usize),
            Some(_) if self.blocks == self.limits.blocks => {
                return Err(too_large(format!("the CAR has more than {} blocks", self.blocks)));
            }
            Some(_) => State::Head(len.min(cid::MAX_LEN as u64) as usize, len),
        };
        Ok(())
    }

    fn header(&mut self) -> Result<()> {
        let cids = read_header(&self.buffer).map_err(|why| self.refuse(why))?;
        if cids.is_empty() {
            return Err(self.refuse("it names no roots"));
        }
        let root = |(i, cid): (usize, &Cid)| {
            cid.root().ok_or_else(|| self.refuse(&format!("root {i} is {cid}: a payload, no map or list")))
        };
        self.roots = Some(cids.iter().enumerate().map(root).collect::<Result<_>>()?);
        self.next();
        Ok(())
    }

    /// The CID of a block is here.
    fn head(&mut self) -> Result<()> {
        let State::Head(_, len) = self.state else {
            return Ok(());
        };
        let (cid, rest) = Cid::split(&self.buffer).map_err(|why| self.refuse(&format!("its CID: {why}")))?;
        let named = cid.as_bytes().len();
        let data = len - named as u64;
        self.state = match cid.root() {
            Some(_) if data > MAX_BLOCK as u64 => {
                return Err(self.refuse(&format!("{cid} has {data} bytes; no tree node has more than {MAX_BLOCK}")));
            }
            Some(root) => State::Node(root, named, len as usize),
            None if data > u64::from(self.limits.payload_bytes) => {
                let why = format!("{cid} has {data} bytes; {} is the limit", self.limits.payload_bytes);
                return Err(too_large(format!("{}: {why}", self.place())));
            }
            None => {
                let mut check = Check::new(&cid);
                check.update(rest);
                if cid.identity().is_none() {
                    self.index.payloads.push(PayloadRecord::new(&cid, self.body, len as u32));
                }
                State::Payload(Box::new(check), data - rest.len() as u64)
            }
        };
        Ok(())
    }

    /// A tree node is here.
    fn node(&mut self) -> Result<()> {
        let State::Node(root, named, len) = self.state else {
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
        self.blocks += 1;
        self.next();
        Ok(())
    }

    /// A payload is here.
    fn payload(&mut self) -> Result<()> {
        if let State::Payload(check, _) = std::mem::replace(&mut self.state, State::Length)
            && let cid = *check.cid()
            && !check.is_match()
        {
            return Err(self.refuse(&format!("{cid}: its bytes have another hash")));
        }
        self.blocks += 1;
        self.next();
        Ok(())
    }

    fn next(&mut self) {
        self.buffer.clear();
        self.state = State::Length;
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
