//! Decoding of pruned trees, and the digests of nodes (protocol sections 3 and 4).

use coregw_core::{Digest, Kind, Suite};

use super::identifier::{is_cid, is_key, read_number, write_number};
use super::{Bits, Node, SUM_LIMIT, Shape, Tree, Verdict, bits_of, bytes_of};

/// The number of bits in the longest key.
const MAX_BITS: u64 = 8 * 8194;

pub(super) fn decode(kind: Kind, suite: Suite, proof: &[u8]) -> Verdict<Tree> {
    let mut decoder = Decoder { tree: Tree { kind, suite, nodes: Vec::new(), top: 0 }, rest: proof };
    let top = decoder.node(&[])?;
    if !decoder.rest.is_empty() {
        return Err("bytes after the tree");
    }
    decoder.tree.top = top;
    Ok(decoder.tree)
}

struct Decoder<'a> {
    tree: Tree,
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    fn take(&mut self, n: u64) -> Verdict<&'a [u8]> {
        let n = usize::try_from(n).map_err(|_| "a length past the end")?;
        let (taken, rest) = self.rest.split_at_checked(n).ok_or("a length past the end")?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Verdict<u64> {
        let (number, rest) = read_number(self.rest)?;
        self.rest = rest;
        Ok(number)
    }

    fn amount(&mut self) -> Verdict<u64> {
        match self.number()? {
            n @ 1..SUM_LIMIT => Ok(n),
            _ => Err("a count or measure that is 0, or 2^53 or more"),
        }
    }

    fn target(&mut self) -> Verdict<Vec<u8>> {
        let len = self.number()?;
        let target = self.take(len)?;
        if is_cid(target) { Ok(target.to_vec()) } else { Err("a target that is not a CID") }
    }

    fn digest(&mut self) -> Verdict<Digest> {
        Ok(Digest(self.take(32)?.try_into().expect("32 bytes")))
    }

    /// Decodes a node and everything below it; `path` are the bits that lead to it. The node gets its number before those
    /// below it, so the top has number 0.
    fn node(&mut self, path: &[bool]) -> Verdict<usize> {
        let id = self.tree.nodes.len();
        let stub = Node {
            shape: Shape::Stub,
            count: 0,
            measure: 0,
            digest: Digest([0; 32]),
            is_shown: false,
            is_visited: false,
        };
        self.tree.nodes.push(stub);
        let node = match (self.tree.kind, self.take(1)?[0]) {
            (Kind::Map, 0x00) | (Kind::List, 0x10) if id == 0 => self.tree.make(Shape::Empty, 0)?,
            (Kind::Map, 0x01) => {
                let key = self.tail(path)?;
                let target = self.target()?;
                self.tree.make(Shape::Leaf { key, target }, 1)?
            }
            (Kind::List, 0x11) => {
                let measure = self.amount()?;
                let target = self.target()?;
                self.tree.make(Shape::Leaf { key: Bits::new(), target }, measure)?
            }
            (Kind::Map, 0x02) => {
                let prefix = self.label(path)?;
                let children = [false, true].map(|side| self.node(&[&prefix[..], &[side]].concat()));
                let [left, right] = children;
                self.tree.make(Shape::Inner { prefix, children: [left?, right?] }, 0)?
            }
            (Kind::List, 0x12) => {
                let children = [self.node(&[])?, self.node(&[])?];
                self.tree.make(Shape::Inner { prefix: Bits::new(), children }, 0)?
            }
            (Kind::Map, 0x03) => {
                let count = self.amount()?;
                Node { count, measure: count, digest: self.digest()?, ..self.tree.nodes[id].clone() }
            }
            (Kind::List, 0x13) => {
                let (count, measure) = (self.amount()?, self.amount()?);
                Node { count, measure, digest: self.digest()?, ..self.tree.nodes[id].clone() }
            }
            _ => return Err("a tag that is not one of these"),
        };
        let is_shown = node.shape != Shape::Stub;
        self.tree.nodes[id] = Node { is_shown, ..node };
        Ok(id)
    }

    /// The key of a leaf: the bits of the path, and those of the tail.
    fn tail(&mut self, path: &[bool]) -> Verdict<Bits> {
        let (floor, n) = (path.len(), self.number()?);
        let tail = bits_of(self.take(n)?);
        let before = floor % 8;
        if tail.len() < before || tail[..before].contains(&true) {
            return Err("a tail that is shorter than the path, or has other bits of it");
        }
        let key = [path, &tail[before..]].concat();
        if is_key(&bytes_of(&key)) { Ok(key) } else { Err("a key that is not one") }
    }

    /// The prefix of an inner node: the bits of the path, and those of the label.
    fn label(&mut self, path: &[bool]) -> Verdict<Bits> {
        let (floor, gap) = (path.len(), self.number()?);
        if gap >= MAX_BITS - floor as u64 {
            return Err("a bit past the longest key");
        }
        let (before, gap) = (floor % 8, gap as usize);
        let len = if gap == 0 { 0 } else { (before + gap).div_ceil(8) };
        let label = bits_of(self.take(len as u64)?);
        if gap == 0 {
            return Ok(path.to_vec());
        }
        if label[..before].contains(&true) || label[before + gap..].contains(&true) {
            return Err("a label with other bits");
        }
        Ok([path, &label[before..before + gap]].concat())
    }
}

impl Tree {
    /// A node with its sums and digest; `measure` counts for leaves only.
    pub(super) fn make(&self, shape: Shape, measure: u64) -> Verdict<Node> {
        let (mut count, mut sum, mut encoding) = (0, 0, Vec::new());
        let is_map = self.kind == Kind::Map;
        match &shape {
            Shape::Empty => encoding.push(if is_map { 0x00 } else { 0x10 }),
            Shape::Leaf { key, target } => {
                (count, sum) = (1, measure);
                encoding.push(if is_map { 0x01 } else { 0x11 });
                if is_map {
                    let key = bytes_of(key);
                    write_number(&mut encoding, key.len() as u64);
                    encoding.extend(key);
                } else {
                    write_number(&mut encoding, measure);
                }
                write_number(&mut encoding, target.len() as u64);
                encoding.extend(target);
            }
            Shape::Inner { prefix, children } => {
                encoding.push(if is_map { 0x02 } else { 0x12 });
                if is_map {
                    write_number(&mut encoding, prefix.len() as u64);
                    encoding.extend(bytes_of(prefix));
                }
                for child in children.map(|child| self.node(child)) {
                    (count, sum) = (count + child.count, sum + child.measure);
                    write_number(&mut encoding, child.count);
                    if !is_map {
                        write_number(&mut encoding, child.measure);
                    }
                    encoding.extend(child.digest.0);
                }
                if !is_map && self.node(children[0]).count != left_count(count) {
                    return Err("a list of another shape");
                }
            }
            Shape::Stub => unreachable!("a stub has a digest"),
        }
        if count >= SUM_LIMIT || sum >= SUM_LIMIT {
            return Err("sums of 2^53 or more");
        }
        let digest = self.suite.digest(&encoding);
        Ok(Node { shape, count, measure: sum, digest, is_shown: false, is_visited: false })
    }
}

/// The largest power of two below `n`.
fn left_count(n: u64) -> u64 {
    (0..).map(|i| 1 << i).take_while(|power| *power < n).last().expect("two children have two leaves")
}
