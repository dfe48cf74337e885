//! Many operations run together: what all of them wait for is one need.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coregw_core::{Digest, Error, Result, RootCid};

use crate::run::{Lookahead, Need, Operation, Progress, Slot, WantedPage};

/// Calls a closure with each index below a count, possibly on several threads, and returns when all calls have.
///
/// Threads are the caller's: this crate starts none.
pub type ForEach = fn(usize, &(dyn Fn(usize) + Sync));

/// Nodes that one operation visits in one turn; few paths in a map of a million keys are longer.
const NODES_PER_TURN: usize = 32;

/// One of the joined operations. It is started when it is first polled and dropped when it ends, so that only those
/// that wait take memory.
enum Child<R> {
    New(R),
    Runnable(Operation),
    Waiting(Operation, Need),
    Done(Vec<u8>),
    Failed(Error),
}

impl<R> Child<R> {
    fn is_runnable(&self) -> bool {
        matches!(self, Self::New(_) | Self::Runnable(_))
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Done(Vec::new()))
    }

    fn poll(&mut self, start: impl Fn(R) -> Operation, budget: u64) {
        let mut operation = match self.take() {
            Self::New(request) => start(request),
            Self::Runnable(operation) => operation,
            other => return *self = other,
        };
        *self = match operation.poll(budget) {
            Ok(Progress::Done(response)) => Self::Done(response),
            Ok(Progress::Needs(Need::Budget)) => Self::Runnable(operation),
            Ok(Progress::Needs(need)) => Self::Waiting(operation, need),
            Err(error) => Self::Failed(error),
        };
    }
}

type Children<R> = [Mutex<Child<R>>];

fn lock<R>(child: &Mutex<Child<R>>) -> MutexGuard<'_, Child<R>> {
    // A panic while a child is polled reaches the caller of `join`, which then drops all children.
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the operation of each request, and returns their responses in order. They may wait for pages and roots only.
///
/// A page that several of them wait for is fetched and parsed once. One that fails ends all.
///
/// # Errors
/// The error of the first operation that failed.
pub(crate) async fn join<R: Send>(
    slot: &Slot,
    requests: Vec<R>,
    start: impl Fn(R) -> Operation + Sync,
    for_each: ForEach,
) -> Result<Vec<Vec<u8>>> {
    let children: Vec<_> = requests.into_iter().map(|request| Mutex::new(Child::New(request))).collect();
    let mut known_roots = HashMap::new();
    loop {
        run_turn(slot, &children, &start, for_each);
        answer_each(&children, |operation, need| match need {
            Need::Roots(roots) => {
                let held: Option<Vec<_>> = roots.iter().map(|root| known_roots.get(root).copied()).collect();
                held.map(|held| operation.supply_roots(held))
            }
            _ => None,
        });
        let waiting = Waiting::of(&children)?;
        if waiting.any_runnable {
            slot.more_budget().await;
        } else if !waiting.roots.is_empty() {
            let (roots, lookahead) = waiting.roots_and_lookahead();
            let held = slot.roots_before(roots.clone(), lookahead).await;
            known_roots.extend(roots.into_iter().zip(held));
        } else if !waiting.pages.is_empty() {
            let pages = slot.pages(waiting.pages).await;
            let pages: HashMap<Digest, _> = pages.into_iter().map(|page| (page.digest(), page)).collect();
            answer_each(&children, |operation, need| match need {
                Need::Pages(wanted) => {
                    let pages = wanted.iter().filter_map(|page| pages.get(&page.digest).cloned()).collect();
                    Some(operation.supply_pages(pages))
                }
                _ => None,
            });
        } else {
            return Ok(responses(children));
        }
    }
}

/// Polls runnable children, which together visit about as many nodes as the budget has left.
fn run_turn<R: Send>(slot: &Slot, children: &Children<R>, start: &(impl Fn(R) -> Operation + Sync), for_each: ForEach) {
    let at_most = usize::try_from(slot.budget()).unwrap_or(usize::MAX) / NODES_PER_TURN;
    let turn: Vec<_> = children.iter().filter(|child| lock(child).is_runnable()).take(at_most.max(1)).collect();
    let budget = (slot.budget() / turn.len().max(1) as u64).max(1);
    for_each(turn.len(), &|index| lock(turn[index]).poll(start, budget));
}

/// Answers the needs of waiting children; `None` leaves a child waiting.
fn answer_each<R>(children: &Children<R>, mut answer: impl FnMut(&mut Operation, &Need) -> Option<Result<()>>) {
    for child in children {
        let mut child = lock(child);
        *child = match child.take() {
            Child::Waiting(mut operation, need) => match answer(&mut operation, &need) {
                None => Child::Waiting(operation, need),
                Some(Ok(())) => Child::Runnable(operation),
                Some(Err(error)) => Child::Failed(error),
            },
            other => other,
        };
    }
}

fn responses<R>(children: Vec<Mutex<Child<R>>>) -> Vec<Vec<u8>> {
    let response = |child: Mutex<Child<R>>| match child.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Child::Done(response) => response,
        _ => Vec::new(),
    };
    children.into_iter().map(response).collect()
}

/// What the children wait for, each page and root once.
#[derive(Default)]
struct Waiting {
    any_runnable: bool,
    roots: Vec<RootCid>,
    /// What the children look for in the trees of these roots.
    keys: HashMap<RootCid, Vec<Vec<u8>>>,
    pages: Vec<WantedPage>,
}

impl Waiting {
    fn of<R>(children: &Children<R>) -> Result<Self> {
        let mut all = Self::default();
        let (mut roots, mut pages) = (HashSet::new(), HashSet::new());
        for child in children {
            match &*lock(child) {
                Child::New(_) | Child::Runnable(_) => all.any_runnable = true,
                Child::Waiting(operation, Need::Roots(wanted)) => {
                    all.roots.extend(wanted.iter().filter(|root| roots.insert(**root)));
                    for Lookahead { root, keys } in operation.lookahead() {
                        all.keys.entry(root).or_default().extend(keys);
                    }
                }
                Child::Waiting(_, Need::Pages(wanted)) => {
                    all.pages.extend(wanted.iter().filter(|page| pages.insert(page.digest)).cloned());
                }
                Child::Waiting(..) => return Err(Error::damaged("a joined operation waits for other than trees")),
                Child::Done(_) => {}
                Child::Failed(error) => return Err(error.clone()),
            }
        }
        Ok(all)
    }

    /// The roots, and what all children look for in their trees, each key once.
    fn roots_and_lookahead(self) -> (Vec<RootCid>, Vec<Lookahead>) {
        let lookahead = |(root, mut keys): (RootCid, Vec<Vec<u8>>)| {
            keys.sort_unstable();
            keys.dedup();
            Lookahead { root, keys }
        };
        (self.roots, self.keys.into_iter().map(lookahead).collect())
    }
}
