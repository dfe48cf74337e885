//! Content identifiers: CIDv1 in binary form, the hash functions of protocol section 1, and root CIDs.
//!
//! ```text
//! varint(1) || varint(codec) || varint(hash function) || varint(digest length) || digest
//!                               └───────────────────── multihash ─────────────────────┘
//! ```
//!
//! Every [`Cid`] is valid: its hash function is known, its digest has that function's full length (an identity CID holds
//! the payload itself, at most 128 bytes), nothing follows, and a root codec occurs only in the CID of a root.
//! [`RootCid`] is a root's CID taken apart: the kind, suite and digest of a tree.

use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};

use crate::error::{Error, InputCode, Result};
use crate::id::function::Function;
pub use crate::id::function::MAX_IDENTITY_BYTES;
use crate::id::suite::{Digest, Suite};
use crate::id::varint;

/// The length of the longest binary CID, in bytes: an identity CID with a codec of 9 bytes.
pub const MAX_LEN: usize = 1 + varint::MAX_LEN + 1 + 2 + MAX_IDENTITY_BYTES;
/// The length of the longest text that is decoded, in bytes: a prefix and base 16.
pub const MAX_TEXT: usize = 1 + 2 * MAX_LEN;
/// Codecs in this range are valid in root CIDs only.
pub const ROOT_CODECS: std::ops::RangeInclusive<u64> = 0x30_0000..=0x30_ffff;

static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut spec = Specification::new();
    spec.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    spec.translate.from.push_str("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    spec.translate.to.push_str("abcdefghijklmnopqrstuvwxyz");
    spec.encoding().expect("32 distinct symbols make an encoding")
});

/// The kind of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The root of a map.
    Map,
    /// The root of a list.
    List,
}

impl Kind {
    fn id(self) -> u64 {
        match self {
            Self::Map => 1,
            Self::List => 2,
        }
    }

    /// The word in requests: `map` or `list`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::List => "list",
        }
    }
}

/// A valid CID in binary form. Equality is equality of that form.
#[derive(Clone, Copy)]
pub struct Cid {
    len: u8,
    bytes: [u8; MAX_LEN],
}

/// The parts of a binary CID, as offsets.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts {
    codec: u64,
    function: Function,
    multihash: usize,
    digest: usize,
}

fn parse(bytes: &[u8]) -> Result<Parts, &'static str> {
    // The common case first: CIDv1, a one-byte codec that is not special, sha2-256.
    if let [1, codec, 0x12, 32, digest @ ..] = bytes
        && *codec < 0x80
        && digest.len() == 32
    {
        return Ok(Parts { codec: u64::from(*codec), function: Function::Sha2_256, multihash: 2, digest: 4 });
    }
    if bytes.first() != Some(&1) {
        return Err("it is not a CIDv1");
    }
    let mut at = 1;
    let mut next = || -> Result<u64, &'static str> {
        let (value, n) = varint::read(&bytes[at..])?;
        at += n;
        Ok(value)
    };
    let codec = next()?;
    let code = next()?;
    let length = next()?;
    let digest = at;
    let Some(function) = Function::from_multihash(code) else {
        return Err("its hash function is not one of sha2-256, sha2-512, sha3-256, blake2b-256, blake3, identity");
    };
    match length.cmp(&(function.digest_bytes() as u64)) {
        Ordering::Greater if function == Function::Identity => {
            return Err("its identity digest is longer than 128 bytes");
        }
        Ordering::Less if function == Function::Identity => {}
        Ordering::Equal => {}
        _ => return Err("its digest does not have the full length of its hash function"),
    }
    match ((bytes.len() - digest) as u64).cmp(&length) {
        Ordering::Less => return Err("it ends inside its digest"),
        Ordering::Greater => return Err("bytes follow its digest"),
        Ordering::Equal => {}
    }
    if ROOT_CODECS.contains(&codec) {
        root_of_codec(codec, function)?;
    }
    let multihash = digest - varint::len(length) - varint::len(code);
    Ok(Parts { codec, function, multihash, digest })
}

fn root_of_codec(codec: u64, function: Function) -> Result<(Kind, Suite), &'static str> {
    if codec >> 12 & 0xf != 3 {
        return Err("it is a root of an unknown version");
    }
    let kind = match codec >> 8 & 0xf {
        1 => Kind::Map,
        2 => Kind::List,
        _ => return Err("it is a root of an unknown kind"),
    };
    let suite = Suite::from_id(codec & 0xff).ok_or("it is a root of an unknown suite")?;
    if suite.function() != function {
        return Err("it is a root with another hash function than its suite's");
    }
    Ok((kind, suite))
}

impl Cid {
    /// Reads a binary CID; the whole of `bytes` must be one.
    ///
    /// # Errors
    /// [`InputCode::InvalidCid`], saying what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::try_bytes(bytes).map_err(|why| Error::input(InputCode::InvalidCid, format!("CID in binary form: {why}")))
    }

    /// Reads the binary CID that `bytes` begin with, and gives what follows it.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), &'static str> {
        let (mut at, mut value) = (0, 0);
        for _ in ["version", "codec", "hash function", "digest length"] {
            let n;
            (value, n) = varint::read(&bytes[at..])?;
            at += n;
        }
        let end = usize::try_from(value).unwrap_or(usize::MAX).saturating_add(at);
        let (cid, rest) = bytes.split_at(end.min(bytes.len()));
        Ok((Self::try_bytes(cid)?, rest))
    }

    /// Parses `bytes` as one binary CID; the error is the reason why they are not.
    pub fn try_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        parse(bytes)?;
        Ok(Self::trusted(bytes))
    }

    /// Wraps bytes that are already known to be a valid CID.
    pub fn trusted(bytes: &[u8]) -> Self {
        let mut cid = Self { len: bytes.len() as u8, bytes: [0; MAX_LEN] };
        cid.bytes[..bytes.len()].copy_from_slice(bytes);
        cid
    }

    /// Checks that `bytes` are a valid binary CID; the error says why they are not.
    #[inline]
    pub fn check(bytes: &[u8]) -> Result<(), &'static str> {
        parse(bytes).map(|_| ())
    }

    /// Parses a CID in text form: multibase `b`, `f` or `k`, whose prefix and digits may be of either case, `z`, `m` or `u`,
    /// or a CIDv0 (`Qm...`), which becomes a CIDv1. This is the form of requests and arguments; what a gateway answers is
    /// compared with [`Cid::text`].
    ///
    /// # Errors
    /// [`InputCode::InvalidCid`] with the text and the reason.
    pub fn from_text(text: &str) -> Result<Self> {
        let Some(len) = base32_len(text)? else {
            return Self::from_other_base(text);
        };
        let mut cid = Self { len: len as u8, bytes: [0; MAX_LEN] };
        read_base32(text, &mut cid.bytes[..len])?;
        Ok(cid)
    }

    /// Appends the binary form of a CID in text form to `out`, and returns its length. Mostly this decodes in place: a large
    /// map has millions of targets.
    ///
    /// # Errors
    /// As [`Cid::from_text`]; what was appended then is unspecified.
    pub(crate) fn append_text(text: &str, out: &mut Vec<u8>) -> Result<u8> {
        let Some(len) = base32_len(text)? else {
            let cid = Self::from_other_base(text)?;
            out.extend_from_slice(cid.as_bytes());
            return Ok(cid.len);
        };
        let start = out.len();
        out.resize(start + len, 0);
        read_base32(text, &mut out[start..])?;
        Ok(len as u8)
    }

    fn from_other_base(text: &str) -> Result<Self> {
        if text.len() == 46 && text.starts_with("Qm") {
            let (_, hash) = multibase::decode(format!("z{text}")).map_err(|_| refuse(text, "it is not base58"))?;
            if hash.len() != 34 || hash[..2] != [0x12, 32] {
                return Err(refuse(text, "it is not a CIDv0"));
            }
            let mut bytes = vec![1, 0x70];
            bytes.extend_from_slice(&hash);
            return Self::try_bytes(&bytes).map_err(|why| refuse(text, why));
        }
        let decoded = match text.bytes().next() {
            Some(b'f' | b'F' | b'k' | b'K') => multibase::decode(text.to_ascii_lowercase()),
            Some(b'z' | b'm' | b'u') => multibase::decode(text),
            _ => {
                let prefix: String = text.chars().take(1).collect();
                let why = format!("unknown multibase prefix {prefix:?}; expected b, f, k, z, m, u or Qm");
                return Err(refuse(text, &why));
            }
        };
        let (_, bytes) = decoded.map_err(|_| refuse(text, "it is not in the base of its prefix"))?;
        Self::try_bytes(&bytes).map_err(|why| refuse(text, why))
    }

    /// Builds the CID with this codec and the payload's digest, which has the length of the function's digests; that of
    /// `identity` is the payload itself, at most [`MAX_IDENTITY_BYTES`].
    pub fn of_payload(codec: u64, function: Function, digest: &[u8]) -> Self {
        let mut bytes = vec![1];
        varint::write(&mut bytes, codec);
        varint::write(&mut bytes, function.multihash());
        varint::write(&mut bytes, digest.len() as u64);
        bytes.extend_from_slice(digest);
        Self::trusted(&bytes)
    }

    /// The payload that an identity CID embeds; `None` for any other CID.
    pub fn identity(&self) -> Option<&[u8]> {
        let parts = self.parts();
        (parts.function == Function::Identity).then(|| &self.as_bytes()[parts.digest..])
    }

    /// The CID in binary form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Encodes the CID as lower-case base32 (`b...`).
    pub fn text(&self) -> String {
        self.write_text(&mut [0; MAX_TEXT]).to_owned()
    }

    /// Encodes the CID as [`Cid::text`] does, into a buffer.
    pub fn write_text<'a>(&self, buffer: &'a mut [u8; MAX_TEXT]) -> &'a str {
        let end = 1 + BASE32.encode_len(self.as_bytes().len());
        buffer[0] = b'b';
        BASE32.encode_mut(self.as_bytes(), &mut buffer[1..end]);
        str::from_utf8(&buffer[..end]).expect("base32 is ASCII")
    }

    fn parts(&self) -> Parts {
        parse(self.as_bytes()).expect("a Cid is checked when it is made")
    }

    /// The multicodec of the content.
    pub fn codec(&self) -> u64 {
        self.parts().codec
    }

    /// The hash function.
    pub fn hash_function(&self) -> Function {
        self.parts().function
    }

    /// The digest without the multihash prefix.
    pub fn digest(&self) -> &[u8] {
        &self.as_bytes()[self.parts().digest..]
    }

    /// The multihash: function code, digest length and digest.
    pub fn multihash(&self) -> &[u8] {
        &self.as_bytes()[self.parts().multihash..]
    }

    /// The parts of a root CID; `None` for the CID of a payload.
    pub fn root(&self) -> Option<RootCid> {
        let parts = self.parts();
        if !ROOT_CODECS.contains(&parts.codec) {
            return None;
        }
        let (kind, suite) = root_of_codec(parts.codec, parts.function).ok()?;
        let digest = Digest(self.as_bytes()[parts.digest..].try_into().ok()?);
        Some(RootCid { kind, suite, digest })
    }

    /// The target kind of protocol section 1: `map`, `list` or `cas`.
    pub fn kind_name(&self) -> &'static str {
        self.root().map_or("cas", |root| root.kind.name())
    }
}

/// The length of the CID whose text form is in base32; `None` if it is in another base.
fn base32_len(text: &str) -> Result<Option<usize>> {
    if text.len() > MAX_TEXT {
        return Err(refuse(text, "it is too long"));
    }
    let Some(symbols) = text.strip_prefix(['b', 'B']) else {
        return Ok(None);
    };
    match BASE32.decode_len(symbols.len()) {
        Ok(len) if len <= MAX_LEN => Ok(Some(len)),
        Ok(_) => Err(refuse(text, "it is too long")),
        Err(_) => Err(refuse(text, "its base32 has a wrong length")),
    }
}

/// Decodes the text form in base32 of a CID that has the length of `out`.
#[inline]
fn read_base32(text: &str, out: &mut [u8]) -> Result<()> {
    BASE32.decode_mut(&text.as_bytes()[1..], out).map_err(|_| refuse(text, "it is not base32"))?;
    parse(out).map(|_| ()).map_err(|why| refuse(text, why))
}

#[cold]
fn refuse(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::input(InputCode::InvalidCid, format!("CID {shown:?}: {why}"))
}

impl PartialEq for Cid {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Cid {}

impl std::hash::Hash for Cid {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// A root CID taken apart: the kind and suite of a tree and the digest of its root node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RootCid {
    /// Map or list.
    pub kind: Kind,
    /// The hash function.
    pub suite: Suite,
    /// The digest of the root node.
    pub digest: Digest,
}

impl RootCid {
    /// Encodes the root as a CID.
    pub fn cid(&self) -> Cid {
        let codec = 0x30_0000 | 3 << 12 | self.kind.id() << 8 | self.suite.id();
        Cid::of_payload(codec, self.suite.function(), &self.digest.0)
    }

    /// Decodes `cid` as the root of a tree of this kind.
    ///
    /// # Errors
    /// [`InputCode::KindMismatch`] if `cid` names a payload or a root of the other kind.
    pub fn of(cid: &Cid, kind: Kind) -> Result<Self> {
        match cid.root() {
            Some(root) if root.kind == kind => Ok(root),
            _ => Err(Error::input(
                InputCode::KindMismatch,
                format!("{cid} is a {}, not the root of a {}", cid.kind_name(), kind.name()),
            )),
        }
    }
}

impl fmt::Display for RootCid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cid().fmt(f)
    }
}
