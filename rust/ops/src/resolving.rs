//! The search for a path through nested maps and lists (protocol section 5, *resolve*): longest arcs first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::messages::Step;
use crate::ops::{Need, Reading, not_held};
use crate::prooflist::{self, Resolve};
use crate::question::Question;
use crate::writing::Proof;
use coregw_core::internals::prove::Answer;
use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{Error, InputCode, Missing, Result};
use coregw_core::{NodeSource, Page, PageCache};

/// Segments of a path that are as much work, for each look-up of them, as visiting one node.
const SEGMENTS_A_NODE: u64 = 8;

/// A place on the way: a held root, how many segments led to it, and the next arc to try.
struct Place {
    root: RootCid,
    position: usize,
    /// Segments of the next arc to try; 0 when none is left.
    next: usize,
    /// The step that led here; None for the first place.
    step: Option<Step<'static>>,
}

/// The search for a path: longest arcs first, back to shorter ones where that fails.
pub(crate) struct Resolving {
    request: Resolve,
    lookups_left: usize,
    places: Vec<Place>,
    tried: HashSet<(RootCid, usize)>,
    /// A root that was come to, and its step, while it is not known whether it is held.
    arrival: Option<(RootCid, usize, Option<Step<'static>>)>,
    pub(crate) held: Option<bool>,
    pub(crate) reading: Option<Reading>,
    /// What all look-ups since the last [`Need::Budget`] took of the budget.
    spent: u64,
    started: bool,
}

pub(crate) enum Outcome {
    Needs(Need),
    Result(Result<String>),
}

impl Resolving {
    pub(crate) fn new(request: Resolve, max_lookups: usize) -> Self {
        Self {
            request,
            lookups_left: max_lookups,
            places: Vec::new(),
            tried: HashSet::new(),
            arrival: None,
            held: None,
            reading: None,
            spent: 0,
            started: false,
        }
    }

    /// Goes on as far as it can. All look-ups together visit some `budget` nodes before it pauses.
    pub(crate) fn run(&mut self, cache: &Arc<PageCache>, budget: u64) -> Result<Outcome> {
        if !self.started {
            if self.request.segments.is_empty() {
                return Ok(Outcome::Result(Ok(self.request.result(&self.request.root, Vec::new()))));
            }
            let root = self.request.root.root().ok_or_else(|| {
                let what =
                    format!("root: {} is a payload; a path leads on from a map or a list only", self.request.root);
                Error::input(InputCode::KindMismatch, what)
            })?;
            self.arrival = Some((root, 0, None));
            self.started = true;
        }
        loop {
            if let Some((root, ..)) = &self.arrival {
                match self.held.take().or_else(|| cache.is_held(root)) {
                    None => return Ok(Outcome::Needs(Need::Roots(vec![*root]))),
                    Some(false) if self.places.is_empty() => return Ok(Outcome::Result(Err(not_held(root)))),
                    Some(held) => self.arrive(held),
                }
            }
            let Some(place) = self.places.last_mut() else {
                return Ok(Outcome::Result(Err(self.nowhere())));
            };
            if place.next == 0 {
                self.places.pop();
                continue;
            }
            if self.spent >= budget {
                self.spent = 0;
                return Ok(Outcome::Needs(Need::Budget));
            }
            let segments = &self.request.segments[place.position..][..place.next];
            let question = match place.root.kind {
                Kind::Map => Question::Key(segments.to_vec()),
                Kind::List => match prooflist::list_index(&segments[0]) {
                    Some(index) => Question::Index(index),
                    None => {
                        place.next = 0;
                        continue;
                    }
                },
            };
            let reading = match &mut self.reading {
                Some(reading) => reading,
                none => {
                    let Some(left) = self.lookups_left.checked_sub(1) else {
                        let what = "segments: the path needs more look-ups than the gateway makes for one request";
                        return Err(Error::input(InputCode::TooLarge, what));
                    };
                    self.lookups_left = left;
                    self.spent += 1 + segments.len() as u64 / SEGMENTS_A_NODE;
                    let source = Arc::clone(cache) as Arc<dyn NodeSource>;
                    none.insert(Reading::open(cache, source, &place.root, question.ask()?))
                }
            };
            let most = budget.saturating_sub(self.spent).max(1);
            let need = reading.run(most)?;
            self.spent += most - reading.query().budget_left();
            if let Some(need) = need {
                if need == Need::Budget {
                    self.spent = 0;
                }
                return Ok(Outcome::Needs(need));
            }
            if let Some(result) = self.looked_up(&question) {
                return Ok(Outcome::Result(result));
            }
        }
    }

    /// The tree that is being read, if one is.
    pub(crate) fn reading_root(&mut self) -> Option<RootCid> {
        self.reading.as_mut().map(|reading| *reading.query().root())
    }

    /// Takes pages that were asked for.
    pub(crate) fn supply(&mut self, pages: Vec<Arc<Page>>) {
        if let Some(reading) = &mut self.reading {
            reading.query().supply(pages);
        }
    }

    /// Goes on from a root that is held, if it was not tried at this position before.
    fn arrive(&mut self, held: bool) {
        if let Some((root, position, step)) = self.arrival.take()
            && held
            && self.tried.insert((root, position))
        {
            let rest = self.request.segments.len() - position;
            let next = if root.kind == Kind::List { 1 } else { rest };
            self.places.push(Place { root, position, next, step });
        }
    }

    /// Takes the answer of a look-up: the result if the path ends there, else where to go on.
    fn looked_up(&mut self, question: &Question) -> Option<Result<String>> {
        let mut reading = self.reading.take()?;
        let place = self.places.last_mut()?;
        let n = place.next;
        place.next -= 1;
        let answer = reading.query().answer()?;
        let target = match &answer {
            Answer::Key(target) => *target,
            Answer::Element(element) => element.target,
            _ => None,
        }?;
        let position = place.position + n;
        let ends = position == self.request.segments.len();
        let onward = target.root().filter(|root| !self.tried.contains(&(*root, position)));
        if !ends && onward.is_none() {
            return None;
        }
        let proof = Proof::Bytes(reading.query().proof());
        let step = question.step(&place.root, &answer, proof);
        if ends {
            return Some(Ok(self.finish(&target, step)));
        }
        self.arrival = onward.map(|root| (root, position, Some(step)));
        None
    }

    fn finish(&mut self, target: &Cid, last: Step<'static>) -> String {
        let mut steps: Vec<_> = self.places.drain(..).filter_map(|place| place.step).collect();
        steps.push(last);
        self.request.result(target, steps)
    }

    fn nowhere(&self) -> Error {
        let path = self.request.segments.join("/");
        let what = format!("{} leads nowhere by the path {path:?}", self.request.root);
        Error::NotFound { missing: Missing::Path, what, details: None }
    }
}
