//! Many operations run together: what all of them wait for is one need.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coregw_core::{Digest, Error, Result, RootCid};

use crate::run::{Need, Operation, Progress, Slot, WantedPage};

/// Calls a closure with each index below a count, possibly on several threads, and returns when all calls have.
///
/// Threads are the caller's: this crate starts none.
pub type ForEach = fn(usize, &(dyn Fn(usize) + Sync));

/// Nodes that one operation visits in one turn; few paths in a map of a million keys are longer.
const NODES_PER_TURN: usize = 32;

struct Child {
    operation: Operation,
    status: Status,
}

enum Status {
    Runnable,
    Waiting(Need),
    Done(String),
    Failed(Error),
}

impl Child {
    fn poll(&mut self, budget: u64) {
        self.status = match self.operation.poll(budget) {
            Ok(Progress::Done(response)) => Status::Done(response),
            Ok(Progress::Needs(Need::Budget)) => Status::Runnable,
            Ok(Progress::Needs(need)) => Status::Waiting(need),
            Err(error) => Status::Failed(error),
        };
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    // A panic while a child is polled reaches the caller of `join`, which then drops all children.
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs operations that wait for pages and roots only, and returns their responses in order.
///
/// A page that several of them wait for is fetched and parsed once. One that fails ends all.
///
/// # Errors
/// The error of the first operation that failed.
pub(crate) async fn join(slot: &Slot, operations: Vec<Operation>, for_each: ForEach) -> Result<Vec<String>> {
    let child = |operation| Mutex::new(Child { operation, status: Status::Runnable });
    let children: Vec<_> = operations.into_iter().map(child).collect();
    let mut known_roots = HashMap::new();
    loop {
        run_turn(slot, &children, for_each);
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
            let held = slot.roots(waiting.roots.clone()).await;
            known_roots.extend(waiting.roots.into_iter().zip(held));
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
fn run_turn(slot: &Slot, children: &[Mutex<Child>], for_each: ForEach) {
    let at_most = usize::try_from(slot.budget()).unwrap_or(usize::MAX) / NODES_PER_TURN;
    let runnable = children.iter().filter(|child| matches!(lock(child).status, Status::Runnable));
    let turn: Vec<_> = runnable.take(at_most.max(1)).collect();
    let budget = (slot.budget() / turn.len().max(1) as u64).max(1);
    for_each(turn.len(), &|index| lock(turn[index]).poll(budget));
}

/// Answers the needs of waiting children; `None` leaves a child waiting.
fn answer_each(children: &[Mutex<Child>], mut answer: impl FnMut(&mut Operation, &Need) -> Option<Result<()>>) {
    for child in children {
        let Child { operation, status } = &mut *lock(child);
        if let Status::Waiting(need) = status
            && let Some(outcome) = answer(operation, need)
        {
            *status = match outcome {
                Ok(()) => Status::Runnable,
                Err(error) => Status::Failed(error),
            };
        }
    }
}

fn responses(children: Vec<Mutex<Child>>) -> Vec<String> {
    let response = |child: Mutex<Child>| match child.into_inner().unwrap_or_else(PoisonError::into_inner).status {
        Status::Done(response) => response,
        _ => String::new(),
    };
    children.into_iter().map(response).collect()
}

/// What the children wait for, each page and root once.
#[derive(Default)]
struct Waiting {
    any_runnable: bool,
    roots: Vec<RootCid>,
    pages: Vec<WantedPage>,
}

impl Waiting {
    fn of(children: &[Mutex<Child>]) -> Result<Self> {
        let mut all = Self::default();
        let (mut roots, mut pages) = (HashSet::new(), HashSet::new());
        for child in children {
            match &lock(child).status {
                Status::Runnable => all.any_runnable = true,
                Status::Waiting(Need::Roots(wanted)) => {
                    all.roots.extend(wanted.iter().filter(|root| roots.insert(**root)));
                }
                Status::Waiting(Need::Pages(wanted)) => {
                    all.pages.extend(wanted.iter().filter(|page| pages.insert(page.digest)).cloned());
                }
                Status::Waiting(_) => return Err(Error::damaged("a joined operation waits for other than trees")),
                Status::Done(_) => {}
                Status::Failed(error) => return Err(error.clone()),
            }
        }
        Ok(all)
    }
}
