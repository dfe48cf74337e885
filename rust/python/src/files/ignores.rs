//! Patterns of files that are left out of a folder, in the syntax of `.gitignore`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use core::{Error, InputCode, Result};
use coregw_core as core;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

/// The file with patterns for the folder that it is in.
const COREGW_IGNORE: &str = ".coregwignore";
const GIT_IGNORE: &str = ".gitignore";
/// The largest file of patterns that is read.
const MAX_BYTES: u64 = 4 << 20;
/// Left out unless a pattern says otherwise.
const GIT_FOLDER: &str = ".git";

/// The patterns that the caller gives, and which files have more.
pub(super) struct Excludes {
    given: Gitignore,
    use_gitignore: bool,
}

/// The patterns of the files in one folder and in those above it.
pub(super) struct Ignores {
    /// Those of `.coregwignore` before those of `.gitignore`.
    files: Vec<Gitignore>,
    above: Option<Arc<Self>>,
}

impl Excludes {
    /// Compiles patterns that are relative to the folder `top`.
    ///
    /// # Errors
    /// [`Error::Input`], naming the pattern, if it is malformed.
    pub(super) fn new(top: &Path, patterns: &[String], use_gitignore: bool) -> Result<Self> {
        let mut builder = GitignoreBuilder::new(top);
        for pattern in patterns {
            let added = builder.add_line(None, pattern);
            added.map_err(|error| Error::request(format!("exclude {pattern:?}: {error}")))?;
        }
        let given = builder.build().map_err(|error| Error::request(format!("exclude: {error}")))?;
        Ok(Self { given, use_gitignore })
    }

    /// Reads the patterns in the files of a folder, which is open, given the names of its files.
    ///
    /// # Errors
    /// [`Error::Input`], naming the file, if a pattern of `.coregwignore` is malformed or the file cannot be read. Git
    /// does not refuse malformed patterns, so those of `.gitignore` are left out.
    pub(super) fn enter<'a>(
        &self,
        (folder, opened): (&Path, BorrowedFd<'_>),
        names: impl Iterator<Item = &'a [u8]>,
        above: Option<Arc<Ignores>>,
    ) -> Result<Option<Arc<Ignores>>> {
        let (mut own, mut git) = (false, false);
        for name in names {
            own |= name == COREGW_IGNORE.as_bytes();
            git |= self.use_gitignore && name == GIT_IGNORE.as_bytes();
        }
        let mut files = Vec::new();
        for (name, is_strict) in [(COREGW_IGNORE, true), (GIT_IGNORE, false)] {
            if if is_strict { own } else { git } {
                let path = folder.join(name);
                let mut builder = GitignoreBuilder::new(folder);
                let failure = add_file(&mut builder, &path, (opened, name), is_strict).err();
                let built = builder.build().map_err(|error| error.to_string());
                match (failure, built) {
                    (Some(why), _) | (None, Err(why)) if is_strict => {
                        let what = format!("{}: {why}", path.display());
                        return Err(Error::input(InputCode::InvalidRequest, what));
                    }
                    (_, Ok(built)) => files.push(built),
                    _ => {}
                }
            }
        }
        Ok(if files.is_empty() { above } else { Some(Arc::new(Ignores { files, above })) })
    }

    /// Whether a file or folder is left out. The last pattern that matches decides: a given one, or else one of the
    /// nearest file.
    pub(super) fn excludes(&self, ignores: Option<&Arc<Ignores>>, path: &Path, name: &OsStr, is_folder: bool) -> bool {
        let mut found = self.given.matched(path, is_folder);
        let mut next = ignores;
        while let (true, Some(level)) = (found.is_none(), next) {
            found = level
                .files
                .iter()
                .map(|file| file.matched(path, is_folder))
                .find(|found| !found.is_none())
                .unwrap_or(Match::None);
            next = level.above.as_ref();
        }
        match found {
            Match::None => name == GIT_FOLDER,
            found => found.is_ignore(),
        }
    }
}

/// Adds the patterns of a file, up to the first malformed one if `is_strict`, else all that are well-formed. Returns
/// why it has not added all.
fn add_file(
    builder: &mut GitignoreBuilder,
    path: &Path,
    (folder, name): (BorrowedFd<'_>, &str),
    is_strict: bool,
) -> std::result::Result<(), String> {
    let content = read(folder, name).map_err(|error| error.to_string())?;
    for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line))
            .map_err(|_| format!("line {number}: not valid UTF-8"))?;
        let line = if index == 0 { line.trim_start_matches('\u{feff}') } else { line };
        if let (Err(error), true) = (builder.add_line(Some(path.to_owned()), line), is_strict) {
            return Err(format!("line {number}: {error}"));
        }
    }
    Ok(())
}

/// Reads a file of patterns. It may be a link, which may lead to anything, such as a device that has no end, or one that
/// does something when it is opened.
fn read(folder: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let check = |is_file| if is_file { Ok(()) } else { Err(io::Error::other("it does not lead to a regular file")) };
    let mode = statat(folder, name, AtFlags::empty())?.st_mode;
    check(FileType::from_raw_mode(mode) == FileType::RegularFile)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty())?);
    check(file.metadata()?.is_file())?;
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(content)
}
