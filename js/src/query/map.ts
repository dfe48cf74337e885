/** Lookups in a map: the descent to a key (sections 3 and 4). */

import { bitAt, compare, firstDifference, tailMask } from "../bytes.ts";
import { InvalidInput } from "../errors.ts";
import type { Node } from "../tree/node.ts";
import type { Tree } from "../tree/pruned.ts";

const MAX_KEYS = 10_000;

/** Where a descent ends: at the key's leaf (`bit` is -1), at an empty map (`bit` is 0), or where the key diverges. */
export interface End {
  readonly node: Node;
  /** The first bit in which the key differs from the node; -1 if it is the key's leaf. */
  readonly bit: number;
}

/** The first of a key's bits in which it diverges from a node's own; -1 if there is none. */
function divergence(node: Node, key: Uint8Array): number {
  const first = node.floor >> 3;
  const end = Math.min(node.end, 8 * key.length);
  if (end <= node.floor) return -1;
  const own = key.slice(first, (end + 7) >> 3);
  own[0] = (own[0] as number) & tailMask(node.floor & 7);
  const bit = firstDifference(own, node.label, end - 8 * first);
  return bit < 0 ? -1 : bit + 8 * first;
}

/** Descend to a key, visiting each node; `turn` is told of each inner node and the child's side. */
export function descend(tree: Tree, key: Uint8Array, turn?: (node: Node, bit: 0 | 1) => void): End {
  for (let node = tree.visit(tree.top); ; ) {
    if (node.kind === "empty") return { node, bit: 0 };
    const bit = divergence(node, key);
    if (bit >= 0) return { node, bit };
    if (node.kind === "leaf")
      return node.end === 8 * key.length
        ? { node, bit: -1 }
        : tree.refuse("two keys, of which one begins with the other");
    if (node.end >= 8 * key.length) tree.refuse("a whole key agrees with the prefix of an inner node");
    const side = bitAt(key, node.end);
    turn?.(node, side);
    node = tree.visit((side === 0 ? node.left : node.right) as Node);
  }
}

/** The target of a key, or null. */
export function get(tree: Tree, key: Uint8Array): Uint8Array | null {
  const { node, bit } = descend(tree, key);
  return bit < 0 ? node.target : null;
}

/**
 * The targets of several keys, in their order.
 * @throws InvalidInput if there is no key, more than 10,000, or one twice.
 */
export function getMany(tree: Tree, keys: readonly Uint8Array[]): (Uint8Array | null)[] {
  return keys.map((key) => get(tree, key));
}

/** Refuse keys that a multiproof cannot be asked for. */
export function checkKeys(keys: readonly Uint8Array[]): void {
  if (keys.length === 0 || keys.length > MAX_KEYS)
    throw new InvalidInput("invalid_request", `${keys.length} keys: expected 1 to ${MAX_KEYS}`);
  const order = keys.map((_, i) => i).sort((a, b) => compare(keys[a] as Uint8Array, keys[b] as Uint8Array) || a - b);
  for (let i = 1; i < order.length; i++)
    if (compare(keys[order[i - 1] as number] as Uint8Array, keys[order[i] as number] as Uint8Array) === 0)
      throw new InvalidInput("invalid_request", `keys[${order[i]}]: the key occurs twice`);
}
