//! Which files of a folder are left out: patterns in the syntax of `.gitignore`.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use core::{Error, InputCode, Result};
use coregw_core as core;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The file with patterns for the folder that it is in.
const COREGW_IGNORE: &str = ".coregwignore";
const GIT_IGNORE: &str = ".gitignore";
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

    /// Reads the patterns in the files of a folder, given the names of its files.
    ///
    /// # Errors
    /// [`Error::Input`], naming the file, if a pattern of `.coregwignore` is malformed or the file cannot be read. Git
    /// does not refuse malformed patterns, so those of `.gitignore` are left out.
    pub(super) fn enter<'a>(
        &self,
        folder: &Path,
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
                let mut builder = GitignoreBuilder::new(folder);
                let failure = builder.add(folder.join(name));
                let built = builder.build();
                match (failure, built) {
                    (Some(error), _) | (None, Err(error)) if is_strict => {
                        let what = format!("{}: {error}", folder.join(name).display());
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
