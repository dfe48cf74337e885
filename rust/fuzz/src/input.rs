//! Structured values from the bytes of an input; zeros follow its end.

use coregw_core::Cid;

use crate::model::{Arcmap, Elements, Path, target};

/// The bytes of an input that are not used yet.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    pub fn below(&mut self, n: usize) -> usize {
        let wide = if n > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % n.max(1)
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Most often a small number, sometimes one near a limit.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            n @ 0..200 => n.into(),
            200..230 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            230..245 => 1 << (self.byte() % 63),
            245..250 => (1 << 53) - u64::from(self.byte()),
            250..=255 => (1 << (self.byte() % 63)) - 1 + u64::from(self.byte()),
        }
    }

    /// A segment: few letters, so that segments share prefixes; zero bytes, other scripts, long repeats.
    pub fn segment(&mut self) -> String {
        let letters = |input: &mut Self, n: usize| {
            (0..n).map(|_| ["a", "b", "\0", "\u{1}", "q", "\u{e9}", "\u{ff}", "0"][input.below(8)]).collect()
        };
        match self.byte() {
            0..160 => ["a", "b", "ab", "c"][self.below(4)].to_owned(),
            160..235 => {
                let n = 1 + self.below(4);
                letters(self, n)
            }
            235..250 => format!("{:03}", self.byte()),
            250..=255 => {
                let n = 1 + self.below(3);
                let part: String = letters(self, n);
                part.repeat(1 + self.below(100))
            }
        }
    }

    pub fn path(&mut self) -> Path {
        let n = 1 + self.below(4);
        (0..n).map(|_| self.segment()).collect()
    }

    /// A path of `known`, a variation of one, or another.
    pub fn near(&mut self, known: &[&Path]) -> Path {
        let Some(path) = (!known.is_empty()).then(|| known[self.below(known.len())].clone()) else {
            return self.path();
        };
        match self.byte() {
            0..120 => path,
            120..150 => path[..path.len().div_ceil(2)].to_vec(),
            150..180 => [path, vec![self.segment()]].concat(),
            180..200 => {
                let mut path = path;
                let last = path.len() - 1;
                path[last].push('a');
                path
            }
            _ => self.path(),
        }
    }

    /// One of a few targets, so that guesses are often right.
    pub fn target(&mut self) -> Cid {
        target(u16::from(self.byte() % 24))
    }

    pub fn arcs(&mut self) -> Arcmap {
        let mut arcs = Arcmap::new();
        for _ in 0..self.below(24) {
            if self.byte() > 240 {
                // Adjacent keys; enough of them take several pages.
                let (folder, n) = (self.segment(), 8 * self.below(40));
                arcs.extend((0..n).map(|i| (vec![folder.clone(), format!("{i:05}")], target(i as u16))));
            }
            let (path, target) = (self.path(), self.target());
            arcs.insert(path, target);
        }
        arcs
    }

    pub fn elements(&mut self) -> Elements {
        let n = if self.byte() > 235 { self.below(1000) } else { self.below(30) };
        let (size, other) = (1 + u64::from(self.byte() % 8), self.flag());
        let element = |input: &mut Self, i: usize| match other && i < 200 {
            true => (input.target(), 1 + input.number() % (1 << 40)),
            false => (target((i % 7) as u16), size),
        };
        (0..n).map(|i| element(self, i)).collect()
    }
}
