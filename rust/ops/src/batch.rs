//! Resolving many paths of one root (protocol section 5, *batches*): what all of them wait for is asked for at once, so
//! that a page is fetched and parsed once however many paths lead through it.
//!
//! Threads are the caller's: [`ResolveBatch::turns`] and [`WantedPage::parse`] are pieces of work that may be done at
//! the same time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::ops::Need;
use crate::prooflist::Resolve;
use crate::resolving::{Outcome, Resolving};
use coregw_core::Digest;
use coregw_core::{Cid, RootCid};
use coregw_core::{Error, InputCode, Missing, Result};
use coregw_core::{Page, PageCache};

/// Nodes that one path visits in a turn, about: few paths of a million keys are longer.
const NODES_A_PATH: usize = 32;

/// What an outcome takes beside its member's name and JSON: a comma, braces, quotes and a colon.
const FRAME: usize = ",{\"\":}".len();

/// One path on its way to its outcome, which is what a resolve of that path alone would have answered.
enum Path {
    Runnable(Box<Resolving>),
    WaitsForRoot(Box<Resolving>, RootCid),
    WaitsForPages(Box<Resolving>, Vec<Digest>),
    /// The member of its item in the response, and its JSON.
    Ended(&'static str, String),
    /// What ends the whole batch.
    Failed(Error),
}

/// Many resolves of one root, on their way from request to response.
pub struct ResolveBatch {
    cache: Arc<PageCache>,
    root: Cid,
    max_lookups: usize,
    max_bytes: usize,
    paths: Vec<Path>,
    asked_roots: Vec<RootCid>,
    asked_pages: Vec<WantedPage>,
    held: HashMap<RootCid, bool>,
}

/// A piece of a batch's work: one path goes on.
pub struct Turn<'a> {
    cache: &'a Arc<PageCache>,
    held: &'a HashMap<RootCid, bool>,
    budget: u64,
    path: &'a mut Path,
}

/// A page that a batch waits for, and the tree that it is of.
pub struct WantedPage {
    root: RootCid,
    digest: Digest,
}

impl ResolveBatch {
    /// A batch without paths.
    ///
    /// Each path may need `max_lookups` look-ups; all outcomes together are at most `max_bytes` long.
    pub fn new(cache: Arc<PageCache>, root: Cid, max_lookups: usize, max_bytes: usize) -> Self {
        Self {
            cache,
            root,
            max_lookups,
            max_bytes,
            paths: Vec::new(),
            asked_roots: Vec::new(),
            asked_pages: Vec::new(),
            held: HashMap::new(),
        }
    }

    /// Adds a path.
    ///
    /// # Errors
    /// [`Error::Input`] for segments that are no path.
    pub fn add(&mut self, segments: Vec<String>) -> Result<()> {
        let request = Resolve::new(self.root, segments)?;
        self.paths.push(Path::Runnable(Box::new(Resolving::new(request, self.max_lookups))));
        Ok(())
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are no paths.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The work of the next turn, which visits some `budget` nodes in all. Do all of it, then ask what it needs.
    pub fn turns(&mut self, budget: u64) -> Vec<Turn<'_>> {
        let most = usize::try_from(budget).unwrap_or(usize::MAX) / NODES_A_PATH;
        let runnable = self.paths.iter_mut().filter(|path| matches!(path, Path::Runnable(_)));
        let paths: Vec<_> = runnable.take(most.max(1)).collect();
        let budget = (budget / paths.len().max(1) as u64).max(1);
        paths.into_iter().map(|path| Turn { cache: &self.cache, held: &self.held, budget, path }).collect()
    }

    /// What the batch waits for after a turn. None: [`ResolveBatch::result`] is ready.
    ///
    /// # Errors
    /// [`Error::Input`] if the root is a payload and a path leads on from it, or if the outcomes are too long;
    /// [`Error::Damaged`] if stored trees are not what they must be.
    pub fn need(&mut self) -> Result<Option<Need>> {
        let mut bytes = 0;
        let mut runnable = false;
        self.asked_roots.clear();
        self.asked_pages.clear();
        let (mut roots, mut pages) = (HashSet::new(), HashSet::new());
        for path in &mut self.paths {
            match path {
                Path::Failed(error) => return Err(error.clone()),
                Path::Ended(member, json) => bytes += member.len() + json.len() + FRAME,
                Path::Runnable(_) => runnable = true,
                Path::WaitsForRoot(_, root) => {
                    if roots.insert(*root) {
                        self.asked_roots.push(*root);
                    }
                }
                Path::WaitsForPages(resolving, digests) => {
                    let of = resolving.reading_root().ok_or_else(|| Error::damaged("a path waits for nothing"))?;
                    let new = digests.iter().filter(|digest| pages.insert(**digest));
                    self.asked_pages.extend(new.map(|digest| WantedPage { root: of, digest: *digest }));
                }
            }
        }
        if bytes > self.max_bytes {
            let what =
                format!("the results together are longer than {} bytes; ask for fewer paths at once", self.max_bytes);
            return Err(Error::input(InputCode::TooLarge, what));
        }
        Ok(if runnable {
            Some(Need::Budget)
        } else if !self.asked_roots.is_empty() {
            Some(Need::Roots(self.asked_roots.clone()))
        } else if !self.asked_pages.is_empty() {
            Some(Need::Pages(self.asked_pages.iter().map(|page| page.digest).collect()))
        } else {
            None
        })
    }

    /// Takes the answers to the last need, in its order.
    ///
    /// # Errors
    /// [`Error::Input`] if they are not as many as were asked for.
    pub fn supply_roots(&mut self, held: &[bool]) -> Result<()> {
        check_count("roots", self.asked_roots.len(), held.len())?;
        self.held.extend(self.asked_roots.drain(..).zip(held.iter().copied()));
        self.each_waiting(|path| match path {
            Path::WaitsForRoot(resolving, _) => Path::Runnable(resolving),
            other => other,
        });
        Ok(())
    }

    /// The pages of the last need, in its order.
    pub fn wanted(&self) -> &[WantedPage] {
        &self.asked_pages
    }

    /// Takes the pages of the last need, in its order, and puts them in the cache.
    ///
    /// # Errors
    /// [`Error::Input`] if they are not as many as were asked for.
    pub fn supply_pages(&mut self, pages: Vec<Arc<Page>>) -> Result<()> {
        check_count("pages", self.asked_pages.len(), pages.len())?;
        for page in &pages {
            self.cache.insert(Arc::clone(page));
        }
        let arrived: HashMap<_, _> = self.asked_pages.drain(..).map(|page| page.digest).zip(pages).collect();
        self.each_waiting(|path| match path {
            Path::WaitsForPages(mut resolving, digests) => {
                resolving.supply(digests.iter().filter_map(|digest| arrived.get(digest).map(Arc::clone)).collect());
                Path::Runnable(resolving)
            }
            other => other,
        });
        Ok(())
    }

    /// The response body, once [`ResolveBatch::need`] gave None.
    pub fn result(&self) -> String {
        let outcomes = self.paths.iter().filter_map(|path| match path {
            Path::Ended(member, json) => Some((member, json)),
            _ => None,
        });
        let bytes: usize = outcomes.clone().map(|(member, json)| member.len() + json.len() + FRAME).sum();
        let mut body = String::with_capacity(bytes + "{\"results\":[]}".len());
        body.push_str("{\"results\":[");
        for (index, (member, json)) in outcomes.enumerate() {
            body.push_str(if index == 0 { "{\"" } else { ",{\"" });
            body.push_str(member);
            body.push_str("\":");
            body.push_str(json);
            body.push('}');
        }
        body.push_str("]}");
        body
    }

    fn each_waiting(&mut self, change: impl Fn(Path) -> Path) {
        for path in &mut self.paths {
            *path = change(std::mem::replace(path, Path::Ended("", String::new())));
        }
    }
}

impl Turn<'_> {
    /// The path goes on as far as it can within its budget.
    pub fn run(&mut self) {
        if let Path::Runnable(resolving) = std::mem::replace(self.path, Path::Ended("", String::new())) {
            *self.path = self.go_on(resolving);
        }
    }

    fn go_on(&self, mut resolving: Box<Resolving>) -> Path {
        loop {
            return match resolving.run(self.cache, self.budget) {
                Ok(Outcome::Needs(Need::Roots(roots))) => match roots.first().map(|root| (root, self.held.get(root))) {
                    Some((_, Some(held))) => {
                        resolving.held = Some(*held);
                        continue;
                    }
                    Some((root, None)) => Path::WaitsForRoot(resolving, *root),
                    None => Path::Failed(Error::damaged("a path waits for nothing")),
                },
                Ok(Outcome::Needs(Need::Pages(digests))) => Path::WaitsForPages(resolving, digests),
                Ok(Outcome::Needs(Need::Budget)) => Path::Runnable(resolving),
                Ok(Outcome::Result(Ok(result))) => Path::Ended("result", result),
                Ok(Outcome::Result(Err(error))) | Err(error) => ended(error),
            };
        }
    }
}

impl WantedPage {
    /// Reads the page and checks it; None is a page that the store does not have. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the page, if it is missing or not what its digest says.
    pub fn parse(&self, bytes: Option<&[u8]>) -> Result<Arc<Page>> {
        Page::of_store(&self.root, &self.digest, bytes)
    }
}

/// What an error makes of its path: an outcome of that path alone, or the end of the batch.
fn ended(error: Error) -> Path {
    let code = match &error {
        Error::NotFound { missing: Missing::Root, .. } => "root_not_found",
        Error::NotFound { .. } => "path_not_found",
        Error::Input { code: code @ InputCode::TooLarge, .. } => code.as_str(),
        _ => return Path::Failed(error),
    };
    let message = serde_json::Value::String(error.to_string());
    Path::Ended("error", format!("{{\"error\":\"{code}\",\"message\":{message}}}"))
}

fn check_count(what: &str, wanted: usize, given: usize) -> Result<()> {
    match wanted == given {
        true => Ok(()),
        false => Err(Error::request(format!("{wanted} {what} were asked for, not {given}"))),
    }
}
