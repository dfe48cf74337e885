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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CID: &str = "bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi";

    fn read(format: LineFormat, text: &[u8], chunk: usize) -> Result<Vec<(String, String)>> {
        let (mut lines, mut arcs) = (ArcLines::new(format), Arcs::default());
        text.chunks(chunk).try_for_each(|chunk| lines.feed(chunk, &mut arcs))?;
        lines.finish(&mut arcs)?;
        let arc = |(key, target): (&[u8], &[u8])| (key::text_of(key).expect("a key"), Cid::trusted(target).text());
        Ok(arcs.iter().map(arc).collect())
    }

    fn paths(format: LineFormat, text: &str) -> Vec<String> {
        read(format, text.as_bytes(), 1 << 20).expect("arcs").into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn lines_of_both_formats_give_arcs_wherever_chunks_end() {
        let json = format!("[\"b/c\",\"{CID}\"]\r\n\n [ \"a\\u0000\\\"\" , \"{CID}\" ]\n[\"x\",\"{CID}\"]");
        let tabs = format!("b/c\t{CID}\r\n  \na\0\"\t{CID}\nx\ty\t{CID}");
        assert_eq!(paths(LineFormat::Json, &json), ["b/c", "a\0\"", "x"]);
        assert_eq!(paths(LineFormat::Tabs, &tabs), ["b/c", "a\0\"", "x\ty"]);
        for chunk in 1..json.len() {
            assert_eq!(
                read(LineFormat::Json, json.as_bytes(), chunk),
                read(LineFormat::Json, json.as_bytes(), json.len())
            );
        }
        assert_eq!(paths(LineFormat::Json, ""), [""; 0]);
    }

    #[test]
    fn a_malformed_line_is_named_by_its_number() {
        let long = format!("[\"{}\",\"{CID}\"]", "x".repeat(MAX_LINE_BYTES));
        let cases = [
            (LineFormat::Json, "[\"a\"]".to_owned(), InputCode::InvalidRequest, "expected [path, CID]"),
            (LineFormat::Json, format!("[\"a\",\"{CID}\",1]"), InputCode::InvalidRequest, "expected [path, CID]"),
            (LineFormat::Json, format!("{{\"a\":\"{CID}\"}}"), InputCode::InvalidRequest, "expected [path, CID]"),
            (LineFormat::Json, format!("[\"a\",\"{CID}\"] []"), InputCode::InvalidRequest, "expected [path, CID]"),
            (LineFormat::Json, "[\"a\u{1}\",\"b\"]".to_owned(), InputCode::InvalidRequest, "control character"),
            (LineFormat::Json, "[\"\u{1}\",\"\u{1}\"]".to_owned(), InputCode::InvalidRequest, "control character"),
            (LineFormat::Json, "[\"\"\",\"\"\"]".to_owned(), InputCode::InvalidRequest, "expected [path, CID]"),
            (LineFormat::Json, r#"["\\","\\"]"#.to_owned(), InputCode::InvalidCid, r#"arc "\\": CID"#),
            (LineFormat::Json, "[\"a\",\"x\"]".to_owned(), InputCode::InvalidCid, "arc \"a\": CID \"x\""),
            (LineFormat::Json, format!("[\"a//b\",\"{CID}\"]"), InputCode::InvalidPath, "path \"a//b\": empty segment"),
            (LineFormat::Json, long, InputCode::InvalidRequest, "longer than 32,768 bytes"),
            (LineFormat::Tabs, format!("a {CID}"), InputCode::InvalidRequest, "no tab"),
            (LineFormat::Tabs, format!("\t{CID}"), InputCode::InvalidPath, "empty segment"),
            (LineFormat::Tabs, format!("a\t{CID} "), InputCode::InvalidCid, "arc \"a\""),
        ];
        for (format, line, expected, text) in cases {
            let good = if format == LineFormat::Json { format!("[\"ok\",\"{CID}\"]") } else { format!("ok\t{CID}") };
            for chunk in [1 << 20, 7] {
                let Err(Error::Input { code, what }) =
                    read(format, format!("{good}\n{line}\n{good}\n").as_bytes(), chunk)
                else {
                    panic!("{line:.80} was accepted");
                };
                assert!(code == expected && what.starts_with("line 2: ") && what.contains(text), "{what}");
            }
        }
        let Err(Error::Input { what, .. }) = read(LineFormat::Json, b"\xff", 1) else { panic!("not UTF-8") };
        assert_eq!(what, "line 1: not UTF-8");
    }

    #[test]
    fn escapes_are_read_where_nothing_else_is_unusual() {
        for (text, path) in [(r#"a\"b"#, "a\"b"), (r"a\\b", "a\\b"), (r"\u0061", "a"), (r"a\/b", "a/b")] {
            assert_eq!(paths(LineFormat::Json, &format!("[\"{text}\",\"{CID}\"]")), [path]);
        }
        let cid = format!("\\u0062{}", &CID[1..]);
        assert_eq!(paths(LineFormat::Json, &format!("[\"a\",\"{cid}\"]")), ["a"]);
    }

    #[test]
    fn lines_are_read_up_to_the_longest_and_no_more_is_kept() {
        let line = |len: usize| format!("{:len$}\n", format!("[\"a\",\"{CID}\"]"));
        for chunk in [1000, MAX_LINE_BYTES, 1 << 20] {
            let longest = read(LineFormat::Json, line(MAX_LINE_BYTES).repeat(2).as_bytes(), chunk);
            assert_eq!(longest.map(|arcs| arcs.len()), Ok(2));
            assert!(read(LineFormat::Json, line(MAX_LINE_BYTES + 1).as_bytes(), chunk).is_err());
        }
        let (mut lines, mut arcs) = (ArcLines::new(LineFormat::Json), Arcs::default());
        assert_eq!(lines.feed(line(100).repeat(3).as_bytes(), &mut arcs), Ok(()));
        assert_eq!((lines.lines(), arcs.len()), (3, 3));
        // The rest of a line that is too long is not waited for.
        for (first, second) in [(0, 100_000), (1, 100_000), (MAX_LINE_BYTES, 2), (100, MAX_LINE_BYTES - 98)] {
            let (mut lines, mut arcs) = (ArcLines::new(LineFormat::Json), Arcs::default());
            assert_eq!(lines.feed(&vec![b' '; first], &mut arcs), Ok(()));
            assert!(lines.feed(&vec![b' '; second], &mut arcs).is_err());
            assert_eq!(lines.lines(), 1);
        }
    }

    proptest! {
        #[test]
        fn written_lines_are_read_again(paths in prop::collection::vec("[^/\u{0}]{1,9}(/.[^/]{0,9})?", 0..20), chunk in 1usize..99) {
            let (mut arcs, mut text) = (Arcs::default(), Vec::new());
            let paths: Vec<_> = paths.into_iter().filter(|path| arcs.push_text(path, CID).is_ok()).collect();
            arcs.iter().try_for_each(|(key, target)| write_line(key, target, &mut text)).expect("lines");
            let found = read(LineFormat::Json, &text, chunk).expect("arcs");
            prop_assert_eq!(found.into_iter().map(|(path, _)| path).collect::<Vec<_>>(), paths);
        }
    }
}
