//! Attributes of a file, symbolic link or folder, and their one encoding (protocol section 7).
//!
//! ```text
//! {"mode": 493, "size": 5, "mtime": 1700000000123456789}
//! a3  64 mode 19 01ed  64 size 05  65 mtime 1b 17979cfe3a0c9d15
//! ```

use std::collections::BTreeMap;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Error, Result, SUM_LIMIT, cid};

use coregw_ops::cbor::{self, BYTES, MAP, NEGATIVE, TEXT, TRUE, UNSIGNED};

/// The codec of records: `dag-cbor`.
const DAG_CBOR: u64 = 0x71;
/// The maximum length of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 1 << 20;
/// The maximum length of a symbolic link's target, in bytes.
pub const MAX_LINK_BYTES: usize = 4095;
/// The maximum length of an extended attribute's name, in bytes.
pub const MAX_XATTR_NAME_BYTES: usize = 255;
/// The maximum length of an extended attribute's value, in bytes.
pub const MAX_XATTR_BYTES: usize = 1 << 16;
/// The bits of a mode: permissions, and set-user-id, set-group-id and sticky.
pub const MODE_BITS: u16 = 0o7777;
/// The mode that the level `exec` records of executable files.
pub const EXECUTABLE: u16 = 0o755;

/// What a path of a folder is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Entry {
    /// A regular file, and its size in bytes if it is recorded.
    #[default]
    File,
    /// A symbolic link to this target: 1 to 4,095 bytes without NUL.
    Link(Vec<u8>),
    /// A folder.
    Folder,
}

/// The attributes of a path of a folder. Each that is absent is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// What the path is.
    pub entry: Entry,
    /// The size of a file, in bytes; below 2^53.
    pub size: Option<u64>,
    /// Permission bits ([`MODE_BITS`]) of a file or folder; a symbolic link has none.
    pub mode: Option<u16>,
    /// The time of the last modification, in nanoseconds since 1970-01-01T00:00Z without leap seconds.
    pub mtime: Option<i64>,
    /// The numbers of the owner and the group.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A record as a map names it: its CID, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The target in the map of attributes: an identity CID if the record fits.
    pub target: Cid,
    /// The record. If `target` is not an identity CID, it is a payload to be stored.
    pub bytes: Vec<u8>,
}

/// The members of a record in the order of DAG-CBOR: shorter names first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Member {
    Gid,
    Uid,
    Link,
    Mode,
    Size,
    Mtime,
    Folder,
    Xattrs,
}

const MEMBERS: [(&str, Member); 8] = [
    ("gid", Member::Gid),
    ("uid", Member::Uid),
    ("link", Member::Link),
    ("mode", Member::Mode),
    ("size", Member::Size),
    ("mtime", Member::Mtime),
    ("folder", Member::Folder),
    ("xattrs", Member::Xattrs),
];

impl Attributes {
    /// Whether nothing is known but that the path is a file: then it has no record.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing is known but that the path is an executable file, as at the level `exec`.
    pub fn is_exec_bit(&self) -> bool {
        *self == Self { mode: Some(EXECUTABLE), ..Self::default() }
    }

    /// The target that names these attributes, and their bytes. O(bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if they are not those of a path: see [`Attributes::decode`].
    pub fn record(&self) -> Result<Record> {
        let bytes = self.encode()?;
        let codec = Codec::from_number(DAG_CBOR)?;
        let function = if bytes.len() <= cid::MAX_IDENTITY_BYTES { Function::Identity } else { Function::Sha2_256 };
        Ok(Record { target: payload::cid(&bytes, codec, function)?, bytes })
    }

    /// Reads the record that a map of attributes names by `target`. `payload` is the record unless `target` holds it.
    /// O(bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if it is not the one encoding of attributes, or `target` is not the one CID of it.
    pub fn of_record(target: &Cid, payload: Option<&[u8]>) -> Result<Self> {
        let bytes = match (target.identity(), payload) {
            (Some(bytes), _) => bytes,
            (None, Some(bytes)) => bytes,
            (None, None) => return Err(Error::request("attributes: a record that is a payload is needed, too")),
        };
        let attributes = Self::decode(bytes)?;
        if attributes.record()?.target != *target {
            return Err(Error::request(format!("attributes: {target} is not the CID of their record")));
        }
        Ok(attributes)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        self.check()?;
        let mut members = Vec::new();
        let mut count = 0;
        let mut member = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
            count += 1;
            write_string(&mut members, TEXT, name.as_bytes());
            write(&mut members);
        };
        if let Some((uid, gid)) = self.owner {
            member("gid", &|out| cbor::write_head(out, UNSIGNED, gid.into()));
            member("uid", &|out| cbor::write_head(out, UNSIGNED, uid.into()));
        }
        if let Entry::Link(target) = &self.entry {
            member("link", &|out| write_string(out, BYTES, target));
        }
        if let Some(mode) = self.mode {
            member("mode", &|out| cbor::write_head(out, UNSIGNED, mode.into()));
        }
        if let Some(size) = self.size {
            member("size", &|out| cbor::write_head(out, UNSIGNED, size));
        }
        if let Some(mtime) = self.mtime {
            // -1 - n in CBOR's negative numbers is the complement of n.
            let (major, number) = if mtime < 0 { (NEGATIVE, !mtime) } else { (UNSIGNED, mtime) };
            member("mtime", &|out| cbor::write_head(out, major, number as u64));
        }
        if self.entry == Entry::Folder {
            member("folder", &|out| out.push(TRUE));
        }
        if !self.xattrs.is_empty() {
            member("xattrs", &|out| write_xattrs(out, &self.xattrs));
        }
        let mut record = Vec::with_capacity(members.len() + 1);
        cbor::write_head(&mut record, MAP, count);
        record.append(&mut members);
        if record.len() > MAX_RECORD_BYTES {
            return Err(refused(&format!("the record takes more than {MAX_RECORD_BYTES} bytes")));
        }
        Ok(record)
    }

    /// Reads a record. O(bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if it is not the one encoding of attributes of a path, or longer than [`MAX_RECORD_BYTES`].
    pub fn decode(record: &[u8]) -> Result<Self> {
        if record.len() > MAX_RECORD_BYTES {
            return Err(refused(&format!("the record takes more than {MAX_RECORD_BYTES} bytes")));
        }
        let mut reader = Reader(record);
        let attributes = reader.attributes().map_err(refused)?;
        if !reader.0.is_empty() {
            return Err(refused("bytes follow the record"));
        }
        attributes.check()?;
        Ok(attributes)
    }

    /// Checks what no encoding shows.
    fn check(&self) -> Result<()> {
        let is_file = self.entry == Entry::File;
        let long_name = |name: &&String| name.is_empty() || name.len() > MAX_XATTR_NAME_BYTES || name.contains('\0');
        let why = if self.is_empty() {
            "nothing is known of the file, so it has no record"
        } else if self.mode.is_some_and(|mode| mode & !MODE_BITS != 0) {
            "a mode has at most 12 bits"
        } else if matches!(self.entry, Entry::Link(_)) && self.mode.is_some() {
            "a symbolic link has no mode"
        } else if self.size.is_some() && !is_file {
            "only a file has a size"
        } else if self.size.is_some_and(|size| size >= SUM_LIMIT) {
            "a size is below 2^53"
        } else if matches!(&self.entry, Entry::Link(target) if !is_link(target)) {
            "the target of a symbolic link has 1 to 4,095 bytes and no NUL"
        } else if self.xattrs.keys().any(|name| long_name(&name)) {
            "the name of an extended attribute has 1 to 255 bytes and no NUL"
        } else if self.xattrs.values().any(|value| value.len() > MAX_XATTR_BYTES) {
            "the value of an extended attribute has at most 65,536 bytes"
        } else {
            return Ok(());
        };
        Err(refused(why))
    }
}

/// Whether these bytes may be the target of a symbolic link.
fn is_link(target: &[u8]) -> bool {
    (1..=MAX_LINK_BYTES).contains(&target.len()) && !target.contains(&0)
}

fn refused(why: &str) -> Error {
    Error::request(format!("attributes: {why}"))
}

fn write_string(out: &mut Vec<u8>, major: u8, bytes: &[u8]) {
    cbor::write_head(out, major, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_xattrs(out: &mut Vec<u8>, xattrs: &BTreeMap<String, Vec<u8>>) {
    let mut sorted: Vec<_> = xattrs.iter().collect();
    sorted.sort_by_key(|(name, _)| (name.len(), *name));
    cbor::write_head(out, MAP, sorted.len() as u64);
    for (name, value) in sorted {
        write_string(out, TEXT, name.as_bytes());
        write_string(out, BYTES, value);
    }
}

/// Strict, bounds-checked reader of a record.
struct Reader<'a>(&'a [u8]);

const MALFORMED: &str = "the record is not canonical DAG-CBOR";

impl<'a> Reader<'a> {
    /// The number of a value of this major type.
    fn number(&mut self, major: u8) -> Result<u64, &'static str> {
        match cbor::split_head(self.0) {
            Some((found, number, rest)) if found == major => {
                self.0 = rest;
                Ok(number)
            }
            Some(_) => Err("a member has another type than it should"),
            None => Err(MALFORMED),
        }
    }

    fn string(&mut self, major: u8) -> Result<&'a [u8], &'static str> {
        let len = usize::try_from(self.number(major)?).map_err(|_| MALFORMED)?;
        let (string, rest) = self.0.split_at_checked(len).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(string)
    }

    fn text(&mut self) -> Result<&'a str, &'static str> {
        std::str::from_utf8(self.string(TEXT)?).map_err(|_| "a name is not UTF-8")
    }

    fn owner_number(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.number(UNSIGNED)?).map_err(|_| "an owner's number is below 2^32")
    }

    fn mtime(&mut self) -> Result<i64, &'static str> {
        let is_negative = self.0.first().is_some_and(|first| first >> 5 == NEGATIVE);
        let number = self.number(if is_negative { NEGATIVE } else { UNSIGNED })?;
        let number = i64::try_from(number).map_err(|_| "a time is within 2^63 nanoseconds of 1970")?;
        Ok(if is_negative { !number } else { number })
    }

    fn attributes(&mut self) -> Result<Attributes, &'static str> {
        let mut read = Attributes::default();
        let (mut uid, mut gid, mut last) = (None, None, None);
        for _ in 0..self.number(MAP)? {
            let name = self.text()?;
            let (_, member) = MEMBERS.into_iter().find(|(known, _)| *known == name).ok_or("an unknown member")?;
            if last >= Some(member) {
                return Err("members are not in order, or occur twice");
            }
            last = Some(member);
            match member {
                Member::Gid => gid = Some(self.owner_number()?),
                Member::Uid => uid = Some(self.owner_number()?),
                Member::Link => read.entry = Entry::Link(self.string(BYTES)?.to_vec()),
                Member::Mode => read.mode = Some(self.number(UNSIGNED)?.try_into().unwrap_or(u16::MAX)),
                Member::Size => read.size = Some(self.number(UNSIGNED)?),
                Member::Mtime => read.mtime = Some(self.mtime()?),
                Member::Folder => self.folder(&mut read)?,
                Member::Xattrs => read.xattrs = self.xattrs()?,
            }
        }
        read.owner = match (uid, gid) {
            (Some(uid), Some(gid)) => Some((uid, gid)),
            (None, None) => None,
            _ => return Err("an owner without a group, or a group without an owner"),
        };
        Ok(read)
    }

    fn folder(&mut self, read: &mut Attributes) -> Result<(), &'static str> {
        self.0 = self.0.strip_prefix(&[TRUE]).ok_or("the member folder is true, or absent")?;
        if read.entry != Entry::File {
            return Err("a symbolic link is no folder");
        }
        read.entry = Entry::Folder;
        Ok(())
    }

    fn xattrs(&mut self) -> Result<BTreeMap<String, Vec<u8>>, &'static str> {
        let mut xattrs = BTreeMap::new();
        let mut last: Option<(usize, &str)> = None;
        for _ in 0..self.number(MAP)? {
            let name = self.text()?;
            if last >= Some((name.len(), name)) {
                return Err("extended attributes are not in order, or occur twice");
            }
            last = Some((name.len(), name));
            xattrs.insert(name.to_owned(), self.string(BYTES)?.to_vec());
        }
        if xattrs.is_empty() { Err("an empty map of extended attributes is left out") } else { Ok(xattrs) }
    }
}
