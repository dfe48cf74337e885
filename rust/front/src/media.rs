//! Media types, and which of several a client accepts most.

use crate::trimmed;

/// The most parameters of one media type; one with more is malformed.
const MAX_PARAMETERS: usize = 16;

/// The weight of a media range without one, in thousandths (RFC 9110 section 12.4.2).
const FULL_WEIGHT: u16 = 1000;

/// A media type or media range with its parameters, such as `application/json; charset=utf-8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType {
    /// `type/subtype` in lower case; in a media range each may be `*`.
    kind: String,
    /// Names, each once, and values, in lower case: the values that the gateway knows have no case.
    parameters: Vec<(String, String)>,
}

impl MediaType {
    /// Parses the value of Content-Type; `None` if it is malformed, repeats a parameter or has more than 16.
    ///
    /// Whitespace around `=` is accepted, as many senders write it.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut parser = Parser { rest: trimmed(value) };
        let found = parser.media_type()?;
        parser.rest.is_empty().then_some(found)
    }

    /// Whether this is one of `offers`: of the same type, with no parameter that the offer has not with this value.
    pub fn is_one_of(&self, offers: &[Self]) -> bool {
        offers.iter().any(|offer| {
            offer.kind == self.kind && self.parameters.iter().all(|parameter| offer.parameters.contains(parameter))
        })
    }

    /// How specifically this media range names `offer`: exactness of the type, then the number of parameters.
    ///
    /// `None` if it does not. Parameters that the offer does not have are ignored, as senders add their own.
    fn specificity(&self, offer: &Self) -> Option<(u8, usize)> {
        let exactness = match self.kind.as_str() {
            "*/*" => 0,
            kind if kind == offer.kind => 2,
            kind => {
                let top = kind.strip_suffix('*').filter(|top| top.ends_with('/'))?;
                offer.kind.starts_with(top).then_some(1)?
            }
        };
        let mut equal = 0;
        for (name, value) in &self.parameters {
            match offer.parameters.iter().find(|(known, _)| known == name) {
                Some((_, offered)) if offered == value => equal += 1,
                Some(_) => return None,
                None => {}
            }
        }
        Some((exactness, equal))
    }
}

/// The index of the offer that Accept wants most; `None` if it wants none of them.
///
/// An offer has the weight of the most specific range that names it (RFC 9110 section 12.5.1). Among offers of equal
/// weight, the one whose type is named more exactly is chosen, then the one that is named first, then the first offer.
/// Malformed ranges are ignored, and malformed weights are 1. O(length of `accept` · number of offers).
pub fn negotiate(accept: &[u8], offers: &[MediaType]) -> Option<usize> {
    let mut found: Vec<Option<(u8, usize, u16, usize)>> = vec![None; offers.len()];
    let mut parser = Parser { rest: accept };
    let mut place = 0;
    while let Some(range) = parser.next_range() {
        let Some((range, weight)) = range else { continue };
        place += 1;
        for (offer, best) in offers.iter().zip(&mut found) {
            let Some((exactness, equal)) = range.specificity(offer) else { continue };
            let is_better = best.is_none_or(|(e, p, w, _)| (exactness, equal, weight) > (e, p, w));
            if is_better {
                *best = Some((exactness, equal, weight, place));
            }
        }
    }
    let wanted = found.iter().enumerate().filter_map(|(index, best)| {
        let (exactness, _, weight, place) = (*best)?;
        (weight > 0).then_some((std::cmp::Reverse((weight, exactness)), place, index))
    });
    wanted.min().map(|(_, _, index)| index)
}

/// Reads media types from the front of a value.
struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    /// The next element of Accept with its weight, `Some(None)` if it is malformed; `None` at the end.
    fn next_range(&mut self) -> Option<Option<(MediaType, u16)>> {
        let start = self.rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        self.rest = &self.rest[start..];
        let found = self.media_type();
        self.skip_space();
        let is_whole = self.rest.first().is_none_or(|&byte| byte == b',');
        self.skip_element();
        Some(found.filter(|_| is_whole).map(|mut range| {
            let at = range.parameters.iter().position(|(name, _)| name == "q");
            let weight = at.map(|at| range.parameters.remove(at).1);
            (range, weight.and_then(|weight| thousandths(weight.as_bytes())).unwrap_or(FULL_WEIGHT))
        }))
    }

    /// Skips to the next comma outside of quotes.
    fn skip_element(&mut self) {
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = self.rest.iter().position(|&byte| {
            if is_escaped {
                is_escaped = false;
            } else {
                match byte {
                    b'"' => is_quoted = !is_quoted,
                    b'\\' => is_escaped = is_quoted,
                    _ => return byte == b',' && !is_quoted,
                }
            }
            false
        });
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }

    /// `type/subtype` with its parameters. One may be empty: the last.
    fn media_type(&mut self) -> Option<MediaType> {
        let kind = self.token()?;
        self.expect(b'/')?;
        let kind = format!("{kind}/{}", self.token()?);
        let mut parameters: Vec<(String, String)> = Vec::new();
        loop {
            self.skip_space();
            if self.expect(b';').is_none() {
                return Some(MediaType { kind, parameters });
            }
            self.skip_space();
            if self.rest.first().is_none_or(|&byte| byte == b',') {
                return Some(MediaType { kind, parameters });
            }
            let name = self.token()?;
            let before = self.skip_space();
            self.expect(b'=')?;
            let is_spaced = before + self.skip_space() > 0;
            let mut value = if self.rest.first() == Some(&b'"') { self.quoted()? } else { self.token()? };
            if parameters.len() == MAX_PARAMETERS || parameters.iter().any(|(known, _)| *known == name) {
                return None;
            }
            if name == "q" && is_spaced {
                value.clear(); // no weight has whitespace (RFC 9110 section 12.4.2)
            }
            parameters.push((name, value));
        }
    }

    /// Skips optional whitespace, and returns its length.
    fn skip_space(&mut self) -> usize {
        let start = self.rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(self.rest.len());
        self.rest = &self.rest[start..];
        start
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    /// A token (RFC 9110 section 5.6.2), in lower case.
    fn token(&mut self) -> Option<String> {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let length = self.rest.iter().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        (length > 0).then(|| String::from_utf8_lossy(token).to_ascii_lowercase())
    }

    /// A quoted string (RFC 9110 section 5.6.4) without its quotes and escapes, in lower case.
    fn quoted(&mut self) -> Option<String> {
        let mut value = Vec::new();
        let mut bytes = self.rest.iter().enumerate().skip(1);
        loop {
            match bytes.next()? {
                (end, b'"') => {
                    self.rest = &self.rest[end + 1..];
                    return Some(String::from_utf8_lossy(&value).to_ascii_lowercase());
                }
                (_, b'\\') => value.push(*bytes.next()?.1),
                (_, &byte) => value.push(byte),
            }
        }
    }
}

/// A weight in thousandths: `0`, `1`, or with up to three digits after the point.
fn thousandths(weight: &[u8]) -> Option<u16> {
    let (whole, digits) = match weight {
        [whole] => (whole, &[][..]),
        [whole, b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    let mut value = u16::from(whole.checked_sub(b'0').filter(|&whole| whole <= 1)?);
    for place in 0..3 {
        let digit = digits.get(place).copied().unwrap_or(b'0');
        value = value * 10 + u16::from(digit.is_ascii_digit().then_some(digit)? - b'0');
    }
    (value <= FULL_WEIGHT).then_some(value)
}
