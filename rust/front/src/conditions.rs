//! Preconditions, byte ranges, and the ranges of trustless gateways.
//!
//! Dates are ignored: what is named by its content has no time of modification (RFC 9110 sections 13.1.3 and 13.1.4).

use std::ops::Range;

use crate::trimmed;

/// What the preconditions of a GET or HEAD decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// All are true: the request is answered, and Range counts.
    Met,
    /// The client has the representation: 304.
    NotModified,
    /// The client wants another one: 412.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD, in the order of RFC 9110 section 13.2.2: If-Match, then If-None-Match.
///
/// `etag` is the strong entity tag of the representation that would be sent, in quotes. A malformed list names no tag.
pub fn evaluate(etag: &[u8], if_match: Option<&[u8]>, if_none_match: Option<&[u8]>) -> Precondition {
    if if_match.is_some_and(|list| !names(list, etag, Comparison::Strong)) {
        Precondition::Failed
    } else if if_none_match.is_some_and(|list| names(list, etag, Comparison::Weak)) {
        Precondition::NotModified
    } else {
        Precondition::Met
    }
}

/// How entity tags are compared (RFC 9110 section 8.8.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// A weak tag equals none.
    Strong,
    /// `W/` is ignored.
    Weak,
}

/// Whether a list of entity tags is `*` or names the strong tag `etag`.
fn names(list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    let mut rest = trimmed(list);
    if rest == b"*" {
        return true;
    }
    let mut is_named = false;
    loop {
        let after_separators = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','));
        let Some(start) = after_separators else { return is_named };
        rest = &rest[start..];
        let is_weak = rest.starts_with(b"W/");
        let opaque = if is_weak { &rest[2..] } else { rest };
        let Some(length) = tag_length(opaque) else { return false };
        is_named |= &opaque[..length] == etag && (comparison == Comparison::Weak || !is_weak);
        rest = trimmed(&opaque[length..]);
        if !rest.is_empty() && rest[0] != b',' {
            return false;
        }
    }
}

/// The length of the opaque tag, in quotes, that `text` begins with.
fn tag_length(text: &[u8]) -> Option<usize> {
    let inside = text.strip_prefix(b"\"")?;
    let end = inside.iter().position(|byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
    (inside[end] == b'"').then_some(end + 2)
}

/// Which bytes of a representation a GET requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of them: 200.
    Whole,
    /// These, at least one: 206.
    Part(Range<u64>),
    /// None of those that there are: 416.
    Unsatisfiable,
}

/// Selects the bytes that Range requests of a representation of `size` bytes with the strong entity tag `etag`.
///
/// Everything is sent if the field is absent or malformed, has another unit or several ranges, or if If-Range is not
/// exactly `etag`. A suffix of an empty representation is all of it (RFC 9110 section 14.1.2).
pub fn select(range: Option<&[u8]>, if_range: Option<&[u8]>, etag: &[u8], size: u64) -> Selection {
    let applies = if_range.is_none_or(|validator| trimmed(validator) == etag);
    match range.filter(|_| applies).and_then(only_range) {
        None => Selection::Whole,
        Some((None, Some(0))) => Selection::Unsatisfiable,
        Some((None, _)) if size == 0 => Selection::Whole,
        Some((None, suffix)) => Selection::Part(size.saturating_sub(suffix.unwrap_or(size))..size),
        Some((Some(first), _)) if first >= size => Selection::Unsatisfiable,
        Some((Some(first), last)) => Selection::Part(first..last.map_or(size, |last| last.min(size - 1) + 1)),
    }
}

/// The first and last position of the only byte range; without a first one, the length of a suffix.
fn only_range(value: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let equals = value.iter().position(|&byte| byte == b'=')?;
    if !trimmed(&value[..equals]).eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut ranges = value[equals + 1..].split(|&byte| byte == b',').map(trimmed).filter(|each| !each.is_empty());
    let (range, None) = (ranges.next()?, ranges.next()) else { return None };
    let dash = range.iter().position(|&byte| byte == b'-')?;
    match (position(&range[..dash])?, position(&range[dash + 1..])?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        found => Some(found),
    }
}

/// A position of any number of digits, those beyond `u64` as the largest one; `Some(None)` for no digits.
fn position(digits: &[u8]) -> Option<Option<u64>> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some((!digits.is_empty()).then(|| digits.iter().fold(0, add)))
}

/// What `entity-bytes` of the IPFS Trustless Gateway specification names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntityBytes {
    /// These bytes of the entity, as many as there are of those requested.
    Part(Range<u64>),
    /// Well-formed, but the entity's size is unknown.
    Unknown,
    /// Not `FROM:TO` or `FROM:*`, or it ends before it begins.
    Malformed,
    /// None of the bytes that there are.
    Outside,
}

/// Parses `entity-bytes`: `FROM:TO`, both inclusive, negative ones from the end; `*` is the end.
///
/// All bytes of an empty entity (`0:*`, `-N:*`) are no bytes outside of it.
pub fn entity_bytes(text: &str, size: Option<u64>) -> EntityBytes {
    let Some((from, to)) = text.split_once(':') else { return EntityBytes::Malformed };
    let (Some(from), Some(to)) = (offset(from), if to == "*" { Some(-1) } else { offset(to) }) else {
        return EntityBytes::Malformed;
    };
    if to < from && (to < 0) == (from < 0) {
        return EntityBytes::Malformed;
    }
    let Some(size) = size else { return EntityBytes::Unknown };
    if size == 0 && from <= 0 && to == -1 {
        return EntityBytes::Part(0..0);
    }
    let place = |offset: i128| if offset < 0 { i128::from(size) + offset } else { offset };
    let (first, last) = (place(from).max(0), place(to).min(i128::from(size) - 1));
    match (u64::try_from(first), u64::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => EntityBytes::Part(first..last + 1),
        _ => EntityBytes::Outside,
    }
}

/// An offset of at most 19 digits.
fn offset(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_valid = (1..=19).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_valid.then(|| text.parse().ok()).flatten()
}
