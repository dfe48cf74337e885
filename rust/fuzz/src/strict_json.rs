//! A second checker of strict JSON (protocol section 5), by recursive descent on the bytes.

use std::collections::BTreeSet;

/// Whether the bytes are one value of strict JSON; negative integers and those up to 64 bits only if `is_signed`.
pub fn is_strict(bytes: &[u8], is_signed: bool) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut reader = Reader { rest: text.as_bytes(), is_signed };
    reader.value(0).is_some() && {
        reader.skip_space();
        reader.rest.is_empty()
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    is_signed: bool,
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        self.rest = &self.rest[self.rest.iter().take_while(|byte| b" \t\n\r".contains(byte)).count()..];
    }

    fn take(&mut self, token: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    fn value(&mut self, depth: u32) -> Option<()> {
        self.skip_space();
        match self.rest.first()? {
            b'n' => self.take(b"null"),
            b't' => self.take(b"true"),
            b'f' => self.take(b"false"),
            b'"' => self.string().map(drop),
            b'[' if depth < 32 => self.items(b']', |reader| reader.value(depth + 1)),
            b'{' if depth < 32 => {
                let mut seen = BTreeSet::new();
                self.items(b'}', |reader| {
                    reader.skip_space();
                    let is_new = seen.insert(reader.string()?);
                    reader.skip_space();
                    reader.take(b":")?;
                    reader.value(depth + 1)?;
                    is_new.then_some(())
                })
            }
            _ => self.integer(),
        }
    }

    /// Reads `[` or `{`, items between commas, and `end`.
    fn items(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.rest = &self.rest[1..];
        self.skip_space();
        if self.take(&[end]).is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            self.skip_space();
            if self.take(&[end]).is_some() {
                return Some(());
            }
            self.take(b",")?;
        }
    }

    fn integer(&mut self) -> Option<()> {
        let is_negative = self.take(b"-").is_some();
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        if digits.is_empty() || digits.len() > 1 && digits[0] == b'0' || matches!(rest, [b'.' | b'e' | b'E', ..]) {
            return None;
        }
        let value: i128 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let range = match (self.is_signed, is_negative) {
            (false, false) => 0..=(1 << 53) - 1,
            (true, false) => 0..=i128::from(i64::MAX),
            (true, true) => 1..=1 << 63,
            (false, true) => return None,
        };
        range.contains(&value).then_some(())
    }

    fn string(&mut self) -> Option<String> {
        self.take(b"\"")?;
        let mut out = Vec::new();
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return String::from_utf8(out).ok(),
                b'\\' => {
                    let mut buffer = [0; 4];
                    out.extend_from_slice(self.escape()?.encode_utf8(&mut buffer).as_bytes());
                }
                0..0x20 => return None,
                byte => out.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(match byte {
            b'"' | b'\\' | b'/' => byte.into(),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => match self.code_unit()? {
                high @ 0xd800..0xdc00 => {
                    self.take(b"\\u")?;
                    let low = self.code_unit().filter(|low| (0xdc00..0xe000).contains(low))?;
                    return char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
                }
                unit => char::from_u32(unit)?,
            },
            _ => return None,
        })
    }

    fn code_unit(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
    }
}
