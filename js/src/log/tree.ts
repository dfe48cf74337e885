/** The Merkle tree of RFC 9162, section 2, with SHA-256: hashes, inclusion and consistency proofs (section 9). */

import { sha256 } from "@noble/hashes/sha2.js";
import { concat, equal } from "../bytes.ts";
import { ProofError } from "../errors.ts";

/** The root of the tree without leaves. */
export const EMPTY_ROOT: Uint8Array = sha256(new Uint8Array(0));

const LEAF = Uint8Array.of(0);
const INNER = Uint8Array.of(1);

export function leafHash(entry: Uint8Array): Uint8Array {
  return sha256(concat(LEAF, entry));
}

function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  return sha256(concat(INNER, left, right));
}

/** The largest power of two below `count`, which is at least 2. */
function split(count: number): number {
  let half = 1;
  while (half * 2 < count) half *= 2;
  return half;
}

/** The root of a tree from the hashes of its leaves. O(n) hashes. */
export function rootOf(leaves: readonly Uint8Array[]): Uint8Array {
  const [only] = leaves;
  if (only === undefined) return EMPTY_ROOT;
  if (leaves.length === 1) return only;
  const middle = split(leaves.length);
  return nodeHash(rootOf(leaves.slice(0, middle)), rootOf(leaves.slice(middle)));
}

/** Whether the siblings of a path are on its left, from the leaf up; and where the subtree at its end starts. */
function path(size: number, isLeft: (middle: number) => boolean, isDone: (end: number) => boolean) {
  const sides: boolean[] = [];
  let [start, end] = [0, size];
  while (!isDone(end) && end - start > 1) {
    const middle = start + split(end - start);
    const left = isLeft(middle);
    sides.push(left);
    if (left) start = middle;
    else end = middle;
  }
  return { sides: sides.reverse(), start };
}

/** @throws ProofError unless `entry` is leaf `index` of the tree. O(log n) hashes. */
export function verifyInclusion(
  entry: Uint8Array,
  index: number,
  size: number,
  root: Uint8Array,
  proof: readonly Uint8Array[],
): void {
  const { sides } = path(
    size,
    (middle) => index >= middle,
    () => false,
  );
  if (!(index >= 0 && index < size) || proof.length !== sides.length)
    throw new ProofError(`an inclusion proof of leaf ${index} in ${size} has ${proof.length} hashes`);
  const computed = proof.reduce(
    (below, other, i) => (sides[i] ? nodeHash(other, below) : nodeHash(below, other)),
    leafHash(entry),
  );
  if (!equal(computed, root)) throw new ProofError(`leaf ${index} is not what the tree of ${size} leaves has`);
}

/** @throws ProofError unless the tree of `old` leaves is a prefix of the new one. O(log n) hashes. */
export function verifyConsistency(
  old: number,
  oldRoot: Uint8Array,
  size: number,
  root: Uint8Array,
  proof: readonly Uint8Array[],
): void {
  if (old > size) throw new ProofError(`a tree of ${size} leaves, after one of ${old}: a rollback`);
  if (old === 0) {
    if (proof.length > 0 || !equal(oldRoot, EMPTY_ROOT))
      throw new ProofError("a consistency proof with the empty tree has no hashes");
    return;
  }
  const { sides, start } = path(
    size,
    (middle) => old > middle,
    (end) => old >= end,
  );
  const seeds = start === 0 ? 0 : 1; // the old tree itself, or the subtree in which it ends
  if (proof.length !== sides.length + seeds)
    throw new ProofError(`a consistency proof of ${old} and ${size} has ${proof.length} hashes`);
  let before = seeds === 0 ? oldRoot : (proof[0] as Uint8Array);
  let after = before;
  proof.slice(seeds).forEach((other, i) => {
    if (sides[i]) before = nodeHash(other, before);
    after = sides[i] ? nodeHash(other, after) : nodeHash(after, other);
  });
  if (!equal(before, oldRoot) || !equal(after, root))
    throw new ProofError(`the tree of ${size} leaves does not continue the one of ${old}: a fork`);
}
