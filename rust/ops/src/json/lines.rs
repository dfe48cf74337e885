//! Arcs as lines of text, read from a stream of any length: one pair of path and CID on each.

use std::borrow::Cow;

use coregw_core::{ArcFault, Arcs, Cid, Error, InputCode, Result, key};

use super::text::shown;

/// The maximum length of a line in bytes: that of the longest path with every byte escaped, its CID, and white space.
pub const MAX_LINE_BYTES: usize = 32 << 10;

/// How a line states its arc. Lines end with LF or CR LF; blank ones are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// A JSON array of two strings, the path in text form and the CID.
    Json,
    /// The path in text form, a tab, and the CID. The path cannot contain line feeds.
    Tabs,
}

/// Reads lines that arrive in chunks, cut anywhere.
#[derive(Debug)]
pub struct ArcLines {
    format: LineFormat,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The number of lines that were read.
    lines: u64,
}

impl ArcLines {
    /// Creates a reader before the first line.
    pub fn new(format: LineFormat) -> Self {
        Self { format, partial: Vec::new(), lines: 0 }
    }

    /// Reads a chunk, and adds the arcs of all lines that are complete. O(bytes).
    ///
    /// # Errors
    /// [`Error::Input`], naming the number of the line, from 1, if it is malformed or longer than [`MAX_LINE_BYTES`].
    pub fn feed(&mut self, chunk: &[u8], arcs: &mut Arcs) -> Result<()> {
        let mut rest = chunk;
        if !self.partial.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let (head, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            self.keep(head)?;
            if end.is_none() {
                return Ok(());
            }
            let whole = std::mem::take(&mut self.partial);
            self.line(&whole[..whole.len() - 1], arcs)?;
            rest = after;
        }
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.line(&rest[..end], arcs)?;
            rest = &rest[end + 1..];
        }
        self.keep(rest)
    }

    /// Reads the last line, if it does not end with a line feed.
    ///
    /// # Errors
    /// As [`ArcLines::feed`].
    pub fn finish(&mut self, arcs: &mut Arcs) -> Result<()> {
        let last = std::mem::take(&mut self.partial);
        if last.is_empty() { Ok(()) } else { self.line(&last, arcs) }
    }

    /// The number of lines that were read.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<()> {
        if self.partial.len() + bytes.len() > MAX_LINE_BYTES + 1 {
            self.lines += 1;
            return Err(self.refuse(InputCode::InvalidRequest, "longer than 32,768 bytes"));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8], arcs: &mut Arcs) -> Result<()> {
        self.lines += 1;
        if line.len() > MAX_LINE_BYTES {
            return Err(self.refuse(InputCode::InvalidRequest, "longer than 32,768 bytes"));
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let line = std::str::from_utf8(line).map_err(|_| self.refuse(InputCode::InvalidRequest, "not UTF-8"))?;
        let (path, target) = match self.format {
            LineFormat::Json => self.json_pair(line)?,
            LineFormat::Tabs => {
                let (path, target) = line
                    .rsplit_once('\t')
                    .ok_or_else(|| self.refuse(InputCode::InvalidRequest, "no tab between a path and a CID"))?;
                (path.into(), target.into())
            }
        };
        arcs.push_text(&path, &target).map_err(|fault| match fault {
            ArcFault::Target(error) => self.in_arc(&path, &error),
            ArcFault::Path(why) => self.refuse(InputCode::InvalidPath, &format!("path {:?}: {why}", shown(&path))),
        })
    }

    fn json_pair<'a>(&self, line: &'a str) -> Result<(Cow<'a, str>, Cow<'a, str>)> {
        if let Some((path, target)) = plain_pair(line) {
            return Ok((path.into(), target.into()));
        }
        serde_json::from_str::<Pair<'_>>(line).map(|Pair(path, target)| (path, target)).map_err(|error| {
            let text = error.to_string();
            let why = text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column()));
            let what = format!("expected [path, CID]: {} (column {})", why.unwrap_or(&text), error.column());
            self.refuse(InputCode::InvalidRequest, &what)
        })
    }

    fn in_arc(&self, path: &str, error: &Error) -> Error {
        self.refuse(InputCode::InvalidCid, &format!("arc {:?}: {error}", shown(path)))
    }

    fn refuse(&self, code: InputCode, what: &str) -> Error {
        Error::input(code, format!("line {}: {what}", self.lines))
    }
}

#[derive(serde::Deserialize)]
#[serde(expecting = "two strings")]
struct Pair<'a>(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] Cow<'a, str>);

/// The strings of `["...","..."]` without white space and escapes, as machines mostly write it; None for other lines.
fn plain_pair(line: &str) -> Option<(&str, &str)> {
    let (path, target) = line.strip_prefix("[\"")?.strip_suffix("\"]")?.split_once("\",\"")?;
    let is_plain = |text: &str| text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\');
    (is_plain(path) && is_plain(target)).then_some((path, target))
}

/// Appends the line of an arc, given by its key and its target in binary form, as JSON. O(bytes).
///
/// # Errors
/// [`Error::Damaged`] if the key or the target is none.
pub fn write_line(key: &[u8], target: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let damaged = |why: &str| Error::damaged(format!("sorted arcs: {why}"));
    let path = key::text_of(key).map_err(damaged)?;
    let target = Cid::try_bytes(target).map_err(damaged)?.text();
    serde_json::to_writer(&mut *out, &(path, target)).map_err(|error| damaged(&error.to_string()))?;
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
#[path = "../../tests/unit/json_lines.rs"]
mod tests;
