//! Differences between two maps (protocol section 4, *diff*).

use coregw_core::{Difference, Differences, RootCid};

use super::decode::decode;
use super::identifier::segments;
use super::query::Bounds;
use super::{Bits, Shape, Tree, Verdict, bytes_of, difference};

/// A subtree, and the bits before its floor.
#[derive(Clone)]
struct Subtree {
    id: usize,
    path: Bits,
}

type Pair = [Option<Subtree>; 2];

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Outside,
    Inside,
    Undecided,
}

/// Verifies one page of the differences of two maps in a window, of at most `limit`.
pub fn diff(
    roots: [&RootCid; 2],
    (prefix, after): (&[String], Option<&[String]>),
    limit: usize,
    proofs: [&[u8]; 2],
) -> Verdict<Differences> {
    let decode = |i: usize| decode(roots[i].kind, roots[i].suite, proofs[i]);
    let mut walk = Walk {
        trees: [decode(0)?, decode(1)?],
        bounds: Bounds::new(prefix, after),
        limit,
        found: Differences::default(),
    };
    for tree in &mut walk.trees {
        tree.visit(0)?;
    }
    let mut pending = vec![[0, 0].map(|id| Some(Subtree { id, path: Bits::new() }))];
    while let Some(pair) = pending.pop() {
        match walk.take(pair)? {
            Some(pairs) => pending.extend(pairs.into_iter().rev()),
            None => {
                walk.found.more = true;
                break;
            }
        }
    }
    let Walk { trees: [a, b], found, .. } = walk;
    b.accept(roots[1], ())?;
    a.accept(roots[0], found)
}

struct Walk {
    trees: [Tree; 2],
    bounds: Bounds,
    limit: usize,
    found: Differences,
}

impl Walk {
    /// Takes a pair. Returns the smaller pairs that it is divided into, or None if the traversal ends there.
    fn take(&mut self, mut pair: Pair) -> Verdict<Option<Vec<Pair>>> {
        if let [Some(x), Some(y)] = &pair
            && self.trees[0].node(x.id).digest == self.trees[1].node(y.id).digest
        {
            return Ok(Some(Vec::new()));
        }
        if self.ends_at(&mut pair, |_, subtree| (subtree.path.clone(), false)) {
            return Ok(None);
        }
        for (tree, subtree) in self.trees.iter_mut().zip(&mut pair) {
            if let Some(Subtree { id, .. }) = subtree
                && tree.visit(*id)? == Shape::Empty
            {
                *subtree = None;
            }
        }
        let known = |tree: &Tree, subtree: &Subtree| match tree.shape(subtree.id) {
            Shape::Leaf { key, .. } => (key, true),
            Shape::Inner { prefix, .. } => (prefix, false),
            _ => unreachable!("only these are left"),
        };
        if self.ends_at(&mut pair, known) {
            return Ok(None);
        }
        self.divide(pair).map(Some)
    }

    /// Drops subtrees that are outside the window, by bits and whether these are a whole key. Returns whether the page is
    /// full and a difference is sure to follow.
    fn ends_at(&self, pair: &mut Pair, bits: impl Fn(&Tree, &Subtree) -> (Bits, bool)) -> bool {
        let mut places = Vec::new();
        for (tree, subtree) in self.trees.iter().zip(pair.iter_mut()) {
            if let Some(there) = subtree {
                let (known, is_key) = bits(tree, there);
                let place = self.place(&known, is_key);
                places.push(place);
                if place == Place::Outside {
                    *subtree = None;
                }
            }
        }
        let is_full = self.found.entries.len() == self.limit;
        is_full && !places.is_empty() && places.iter().all(|place| *place == Place::Inside)
    }

    fn place(&self, known: &Bits, is_key: bool) -> Place {
        let Bounds { lo, hi, excludes_lo } = &self.bounds;
        let after_lo = match lo {
            None => Some(true),
            Some(lo) if is_key && known == lo => Some(!excludes_lo),
            Some(lo) => difference(known, lo).map(|bit| known[bit]),
        };
        let before_hi = match hi {
            None => Some(true),
            Some(hi) => match difference(known, hi) {
                Some(bit) => Some(hi[bit]),
                None => {
                    if known.len() >= hi.len() {
                        Some(false)
                    } else {
                        None
                    }
                }
            },
        };
        match (after_lo, before_hi) {
            (Some(false), _) | (_, Some(false)) => Place::Outside,
            (Some(true), Some(true)) => Place::Inside,
            _ => Place::Undecided,
        }
    }

    fn divide(&mut self, pair: Pair) -> Verdict<Vec<Pair>> {
        let parts = |i: usize, subtree: &Subtree| match self.trees[i].shape(subtree.id) {
            Shape::Inner { prefix, children: [left, right] } => {
                let child = |id, side| Subtree { id, path: [&prefix[..], &[side]].concat() };
                let children = [child(left, false), child(right, true)];
                (prefix, Some(children))
            }
            Shape::Leaf { key, .. } => (key, None),
            _ => unreachable!("only these are left"),
        };
        let alone = |i: usize, subtree: Subtree| if i == 0 { [Some(subtree), None] } else { [None, Some(subtree)] };
        Ok(match pair {
            [None, None] => Vec::new(),
            [Some(one), None] => match parts(0, &one).1 {
                Some(children) => children.map(|child| alone(0, child)).into(),
                None => self.add([Some(one.id), None]),
            },
            [None, Some(one)] => match parts(1, &one).1 {
                Some(children) => children.map(|child| alone(1, child)).into(),
                None => self.add([None, Some(one.id)]),
            },
            [Some(x), Some(y)] => {
                let ((a, below_x), (b, below_y)) = (parts(0, &x), parts(1, &y));
                match (difference(&a, &b), below_x, below_y) {
                    (Some(bit), ..) if b[bit] => vec![alone(0, x), alone(1, y)],
                    (Some(_), ..) => vec![alone(1, y), alone(0, x)],
                    (None, None, None) if a == b => self.add([Some(x.id), Some(y.id)]),
                    (None, Some([xl, xr]), Some([yl, yr])) if a == b => {
                        vec![[Some(xl), Some(yl)], [Some(xr), Some(yr)]]
                    }
                    (None, Some([left, right]), _) if a.len() < b.len() => match b[a.len()] {
                        false => vec![[Some(left), Some(y)], alone(0, right)],
                        true => vec![alone(0, left), [Some(right), Some(y)]],
                    },
                    (None, _, Some([left, right])) if b.len() < a.len() => match a[b.len()] {
                        false => vec![[Some(x), Some(left)], alone(1, right)],
                        true => vec![alone(1, left), [Some(x), Some(right)]],
                    },
                    _ => return Err("one key in another"),
                }
            }
        })
    }

    fn add(&mut self, leaves: [Option<usize>; 2]) -> Vec<Pair> {
        let target = |i: usize| leaves[i].map(|id| self.trees[i].cid(id));
        let side = usize::from(leaves[0].is_none());
        let Some(Shape::Leaf { key, .. }) = leaves[side].map(|id| self.trees[side].shape(id)) else {
            unreachable!("a difference has a leaf")
        };
        let (segments, before, after) = (segments(&bytes_of(&key)), target(0), target(1));
        self.found.entries.push(Difference { segments, before, after });
        Vec::new()
    }
}
