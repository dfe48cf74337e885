//! Patterns of files that are left out of a folder, with the syntax and the meaning that git gives them: bytes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use core::{Cid, Error, InputCode, Result, Suite};
use coregw_core as core;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

use crate::beneath;
use crate::contents;
use crate::entries::EntryKind;

/// The file with patterns for the folder that it is in.
const COREGW_IGNORE: &str = ".coregwignore";
const GIT_IGNORE: &str = ".gitignore";
/// The largest file of patterns that is read.
const MAX_BYTES: u64 = 4 << 20;
/// Left out unless a pattern says otherwise.
const GIT_FOLDER: &str = ".git";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Which files of patterns count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// All that the folder has. One that cannot be read is an error: without it, what it excludes would be included.
    Own,
    /// None, and `.git` is not left out either.
    None,
    /// Those whose targets in a root are these, by their paths.
    Named(BTreeMap<PathBuf, Cid>),
    /// Those that are not left out themselves: a root that is the folder's names them with the bytes that they have.
    Included,
}

/// The patterns that the caller gives, and which files have more.
pub struct Excludes {
    given: Patterns,
    use_gitignore: bool,
    rules: Rules,
}

/// The patterns of the files in one folder and in those above it.
pub struct Ignores {
    /// The length of the folder's path below the top, with its slash, in bytes.
    below: usize,
    /// Those of `.coregwignore` before those of `.gitignore`.
    files: Vec<Patterns>,
    above: Option<Arc<Self>>,
}

/// The folder whose files of patterns are read.
pub struct Opened<'a> {
    /// For messages.
    pub path: &'a Path,
    /// Relative to the top.
    pub below: &'a Path,
    pub folder: BorrowedFd<'a>,
}

impl Excludes {
    /// Parses patterns that are relative to the top folder.
    ///
    /// # Errors
    /// [`Error::Input`], naming the pattern, if it is malformed.
    pub fn new(patterns: &[OsString], use_gitignore: bool, rules: Rules) -> Result<Self> {
        let mut given = Patterns { source: "--exclude".to_owned(), patterns: Vec::new() };
        for pattern in patterns {
            let added = given.add(pattern.as_bytes(), 0);
            added.map_err(|why| Error::request(format!("exclude {pattern:?}: {why}")))?;
        }
        Ok(Self { given, use_gitignore, rules })
    }

    /// Reads the patterns in the files of a folder, given what it has.
    ///
    /// # Errors
    /// [`Error::Input`], naming the file and the line, if one that counts cannot be read or a pattern is malformed.
    pub fn enter<'a>(
        &self,
        opened: &Opened<'_>,
        entries: impl Iterator<Item = (&'a [u8], EntryKind)>,
        above: Option<Arc<Ignores>>,
    ) -> Result<Option<Arc<Ignores>>> {
        let mut has = [(COREGW_IGNORE, false), (GIT_IGNORE, false)];
        for (name, kind) in entries {
            for (known, has) in &mut has {
                *has |=
                    name == known.as_bytes() && (kind == EntryKind::File || kind == EntryKind::Link && self.is_own());
            }
        }
        has[1].1 &= self.use_gitignore;
        let mut names = Vec::new();
        let mut ignores = Ignores { below: opened.below.as_os_str().len(), files: Vec::new(), above };
        ignores.below += usize::from(ignores.below > 0);
        for (name, _) in has.into_iter().filter(|(_, has)| *has) {
            let path = opened.path.join(name);
            let refused =
                |why: String| Error::input(InputCode::InvalidRequest, format!("{}: {why}", beneath::shown(&path)));
            let Some(content) = self.read(opened, name).map_err(refused)? else { continue };
            let source = beneath::shown(&opened.below.join(name));
            ignores.files.push(Patterns::parse(source, &content).map_err(refused)?);
            names.push(name);
        }
        let excludes_itself = |ignores: &Ignores, names: &[&str]| {
            let is_excluded =
                |name: &&str| self.reason(Some(ignores), &opened.below.join(name), OsStr::new(name), false).is_some();
            names.iter().position(is_excluded).filter(|_| self.rules == Rules::Included)
        };
        // One that goes may have included the other.
        while let Some(place) = excludes_itself(&ignores, &names) {
            names.remove(place);
            ignores.files.remove(place);
        }
        Ok(if ignores.files.is_empty() { ignores.above } else { Some(Arc::new(ignores)) })
    }

    /// Whether a link may lead to a file of patterns: a root that names the link says nothing of that file.
    fn is_own(&self) -> bool {
        self.rules == Rules::Own
    }

    /// The bytes of a file of patterns; none of one that does not count.
    fn read(&self, opened: &Opened<'_>, name: &str) -> std::result::Result<Option<Vec<u8>>, String> {
        match &self.rules {
            Rules::None => Ok(None),
            Rules::Own | Rules::Included => {
                read(opened.folder, name, self.is_own()).map(Some).map_err(|error| beneath::why(&error))
            }
            Rules::Named(targets) => match targets.get(&opened.below.join(name)) {
                Some(target) => Ok(read_target(opened.folder, name, target)),
                None => Ok(None),
            },
        }
    }

    /// Why a file or folder is left out, given its path below the top; none if it is not. The last pattern that matches
    /// decides: a given one, or else one of the nearest file.
    pub fn reason(&self, ignores: Option<&Ignores>, below: &Path, name: &OsStr, is_folder: bool) -> Option<String> {
        let path = below.as_os_str().as_bytes();
        let mut found = self.given.matched(path, is_folder);
        let mut next = ignores;
        while let (None, Some(level)) = (found, next) {
            found = level.files.iter().find_map(|file| file.matched(&path[level.below..], is_folder));
            next = level.above.as_deref();
        }
        match found {
            Some((_, pattern)) if pattern.is_negative => None,
            Some((file, pattern)) if pattern.line > 0 => Some(format!("{}, line {}", file.source, pattern.line)),
            Some((file, _)) => Some(file.source.clone()),
            None => (name == GIT_FOLDER && self.rules != Rules::None).then(|| GIT_FOLDER.to_owned()),
        }
    }
}

/// Reads a file of patterns. It may be a link, if these are followed, which may lead to anything, such as a device that
/// has no end, or one that does something when it is opened.
fn read(folder: BorrowedFd<'_>, name: &str, follows_links: bool) -> io::Result<Vec<u8>> {
    let check = |is_file| if is_file { Ok(()) } else { Err(io::Error::other("it does not lead to a regular file")) };
    let (at, open) =
        if follows_links { (AtFlags::empty(), OFlags::empty()) } else { (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW) };
    check(FileType::from_raw_mode(statat(folder, name, at)?.st_mode) == FileType::RegularFile)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | open;
    let file = File::from(openat(folder, name, flags, Mode::empty())?);
    check(file.metadata()?.is_file())?;
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(content)
}

/// Reads a file of patterns; none if it cannot be read, or has another target in a folder's map.
fn read_target(folder: BorrowedFd<'_>, name: &str, target: &Cid) -> Option<Vec<u8>> {
    let content = read(folder, name, false).ok()?;
    let suite = target.root().map_or(Suite::default(), |root| root.suite);
    (contents::target_of(&content, suite).ok()? == *target).then_some(content)
}

/// The patterns of one file, or those that are given.
struct Patterns {
    /// Where they are from, for messages.
    source: String,
    patterns: Vec<Pattern>,
}

/// A pattern, in git's sense.
struct Pattern {
    /// What it matches: a path below the folder of its file if it has a slash, otherwise a name.
    tokens: Vec<Token>,
    /// The bytes at its end that are none of the special characters: most names do not end with them.
    end: Box<[u8]>,
    is_path: bool,
    /// Whether it includes what it matches.
    is_negative: bool,
    only_folders: bool,
    /// 0 if it is given.
    line: u32,
}

/// A part of a pattern.
enum Token {
    Byte(u8),
    /// `?`: any byte but a slash.
    Any,
    /// `[a-z]`: bytes, one bit for each.
    Class([u64; 4]),
    /// `*`: any bytes without a slash.
    Star,
    /// `**` that is a whole name, without the slash after it: any bytes.
    Everything,
    /// `**/`: nothing, or bytes that end with a slash.
    Folders,
}

impl Token {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => byte != b'/',
            Self::Class(bytes) => byte != b'/' && bytes[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
            Self::Star | Self::Everything | Self::Folders => false,
        }
    }
}

impl Patterns {
    /// Parses the lines of a file.
    ///
    /// # Errors
    /// The first line that is malformed, and why. Git takes such a line for one that matches nothing, and what it was
    /// to exclude would be included.
    fn parse(source: String, content: &[u8]) -> std::result::Result<Self, String> {
        let mut all = Self { source, patterns: Vec::new() };
        let content = content.strip_prefix(BYTE_ORDER_MARK).unwrap_or(content);
        for (line, number) in content.split(|&byte| byte == b'\n').zip(1..) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            all.add(line, number).map_err(|why| format!("line {number}: {why}"))?;
        }
        Ok(all)
    }

    /// Adds a line, unless it is empty or a comment.
    fn add(&mut self, line: &[u8], number: u32) -> std::result::Result<(), String> {
        if line.starts_with(b"#") {
            return Ok(());
        }
        if line.contains(&0) {
            return Err("it contains a NUL: is the file UTF-16?".to_owned());
        }
        let line = without_spaces(line);
        let (is_negative, line) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let (only_folders, line) = line.strip_suffix(b"/").map_or((false, line), |rest| (true, rest));
        if line.is_empty() {
            return Ok(());
        }
        let is_path = line.contains(&b'/');
        let tokens = tokens(line.strip_prefix(b"/").unwrap_or(line), is_path)?;
        let literals =
            tokens.iter().rev().map_while(|token| if let Token::Byte(byte) = token { Some(*byte) } else { None });
        let mut end: Vec<u8> = literals.collect();
        end.reverse();
        self.patterns.push(Pattern { tokens, end: end.into(), is_path, is_negative, only_folders, line: number });
        Ok(())
    }

    /// The last pattern that matches a path below the folder of the file.
    fn matched(&self, path: &[u8], is_folder: bool) -> Option<(&Self, &Pattern)> {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let matches = |pattern: &&Pattern| {
            let may_match = path.ends_with(&pattern.end) && (is_folder || !pattern.only_folders);
            may_match && matches(&pattern.tokens, if pattern.is_path { path } else { name })
        };
        self.patterns.iter().rev().find(matches).map(|pattern| (self, pattern))
    }
}

/// A line without the spaces at its end that no backslash precedes.
fn without_spaces(line: &[u8]) -> &[u8] {
    let (mut end, mut is_escaped) = (0, false);
    for (place, &byte) in line.iter().enumerate() {
        if is_escaped || byte != b' ' {
            end = place + 1;
        }
        is_escaped = !is_escaped && byte == b'\\';
    }
    &line[..end]
}

/// Parses a pattern without its signs. In one without a slash, `**` is as `*`.
fn tokens(pattern: &[u8], is_path: bool) -> std::result::Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let (mut at, mut is_special) = (0, false);
    while let Some(&byte) = pattern.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'\\' => {
                let escaped = pattern.get(at).ok_or("a backslash at its end escapes nothing")?;
                tokens.push(Token::Byte(*escaped));
                at += 1;
            }
            b'?' => tokens.push(Token::Any),
            b'[' => {
                let (class, end) = class(pattern, at).ok_or("a class of characters has no end, or an unknown name")?;
                tokens.push(Token::Class(class));
                at = end;
            }
            b'*' => {
                at += pattern[at..].iter().take_while(|&&byte| byte == b'*').count();
                // Git compares what is before the first special character by itself, and with the rest it begins anew.
                let is_start = !is_special || pattern[start - 1] == b'/';
                tokens.push(match &pattern[at..] {
                    [] | [b'\\', b'/', ..] if is_path && at - start > 1 && is_start => Token::Everything,
                    [b'/', ..] if is_path && at - start > 1 && is_start => {
                        at += 1;
                        Token::Folders
                    }
                    _ => Token::Star,
                });
            }
            byte => {
                tokens.push(Token::Byte(byte));
                continue;
            }
        }
        is_special = true;
    }
    Ok(tokens)
}

/// The class of bytes that begins after a `[`, and where it ends; none if it has no end or a name that is unknown.
fn class(pattern: &[u8], mut at: usize) -> Option<([u64; 4], usize)> {
    let is_negative = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(is_negative);
    let mut has = [false; 256];
    let mut before = None;
    let first = at;
    loop {
        let mut byte = *pattern.get(at)?;
        if byte == b']' && at > first {
            break;
        }
        at += 1;
        if byte == b'[' && pattern.get(at) == Some(&b':') {
            let end = at + 1 + pattern[at + 1..].iter().position(|&byte| byte == b']')?;
            if let Some(name) = pattern[at + 1..end].strip_suffix(b":") {
                let is_in = named_class(name)?;
                (0..=u8::MAX).filter(is_in).for_each(|byte| has[usize::from(byte)] = true);
                (before, at) = (None, end + 1);
                continue;
            }
        }
        let is_range = byte == b'-' && before.is_some() && !matches!(pattern.get(at), None | Some(b']'));
        if is_range {
            byte = *pattern.get(at)?;
            at += 1;
        }
        if byte == b'\\' {
            byte = *pattern.get(at)?;
            at += 1;
        }
        let from = before.filter(|_| is_range).unwrap_or(byte);
        (from..=byte).for_each(|byte| has[usize::from(byte)] = true);
        before = (!is_range).then_some(byte);
    }
    let mut bits = [0_u64; 4];
    for byte in (0..=u8::MAX).filter(|&byte| has[usize::from(byte)] != is_negative) {
        bits[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    Some((bits, at + 1))
}

/// What is in a class of this name.
fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

/// Whether a pattern matches the whole of a text. O(tokens x bytes), or that x bytes with several `**`.
///
/// Each `*` and each `**` takes as little as it can. If the rest does not match, the last `*` takes more, up to a slash,
/// and then the last `**`: what those before it took needs no other try.
fn matches(tokens: &[Token], text: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let (mut star, mut deep) = (None, None);
    loop {
        match tokens.get(token) {
            Some(Token::Star) => {
                token += 1;
                star = Some((token, at));
                continue;
            }
            Some(kind @ (Token::Everything | Token::Folders)) => {
                token += 1;
                (star, deep) = (None, Some((token, at, matches!(kind, Token::Folders))));
                continue;
            }
            Some(own) if text.get(at).is_some_and(|&byte| own.matches(byte)) => {
                (token, at) = (token + 1, at + 1);
                continue;
            }
            None if at == text.len() => return true,
            _ => {}
        }
        if let Some((next, from)) = star.filter(|&(_, from)| text.get(from).is_some_and(|&byte| byte != b'/')) {
            (token, at) = (next, from + 1);
            star = Some((next, from + 1));
            continue;
        }
        star = None;
        let Some((next, from, is_folders)) = deep else { return false };
        let rest = text.get(from..).unwrap_or_default();
        let step =
            if is_folders { rest.iter().position(|&byte| byte == b'/') } else { (!rest.is_empty()).then_some(0) };
        let Some(step) = step else { return false };
        (token, at) = (next, from + step + 1);
        deep = Some((next, at, is_folders));
    }
}
