/** Nodes of a pruned tree, their bits, and their digests (section 3). */

import { concat, EMPTY, NUMBER_LIMIT, tailMask, varint } from "../bytes.ts";
import type { Hash } from "../hashes.ts";
import { MAX_KEY_BYTES } from "../key.ts";

export type NodeKind = "empty" | "leaf" | "inner" | "stub";

/**
 * A node of a pruned map or list.
 *
 * A map's node holds only the bits from `floor` to `end`: those before `floor` are the bits of the path that leads to it.
 *
 * ```
 *   path     0 1 1 0 1 0 0 1 0 1 1 0 …
 *            └ above ┘ └ label ┘ ↑
 *                    floor      end: the bit of an inner node, the length of a leaf's key in bits
 * ```
 */
export class Node {
  readonly kind: NodeKind;
  floor = 0;
  end = 0;
  /** The bytes that hold the bits from `floor` to `end`; other bits are 0. */
  label: Uint8Array = EMPTY;
  target: Uint8Array = EMPTY;
  left: Node | null = null;
  right: Node | null = null;
  count = 0;
  /** The sum of the elements' measures; in a map 0. */
  measure = 0;
  /** Null after a change below. */
  digest: Uint8Array | null = null;
  isVisited = false;
  /** The byte of the proof at which the node is shown. */
  offset = 0;
  /** For a stub of a page: all bits before `floor`. */
  path: Uint8Array = EMPTY;
  /** For a stub of a page: the top node of the page that was fetched for it. */
  page: Node | null = null;

  constructor(kind: NodeKind) {
    this.kind = kind;
  }
}

/** A path buffer: room for every key. */
export function pathBuffer(): Uint8Array {
  return new Uint8Array(MAX_KEY_BYTES + 1);
}

/** Write a node's own bits into the path that leads to it. */
export function writeLabel(path: Uint8Array, node: Node): void {
  const [first, rest] = [node.floor >> 3, tailMask(node.floor & 7)];
  for (let i = 0; i < node.label.length; i++) {
    const above = i === 0 ? (path[first] as number) & ~rest : 0;
    path[first + i] = above | (node.label[i] as number);
  }
}

/** Write one bit, and zeros after it in its byte. */
export function writeBit(path: Uint8Array, i: number, bit: 0 | 1): void {
  const above = (path[i >> 3] as number) & ~tailMask(i & 7);
  path[i >> 3] = above | (bit << (7 - (i & 7)));
}

/** The bytes of a path that hold its bits from `floor` to `end`, other bits 0. */
export function cutLabel(path: Uint8Array, floor: number, end: number): Uint8Array {
  if (floor === end) return EMPTY;
  const label = path.slice(floor >> 3, (end + 7) >> 3);
  label[0] = (label[0] as number) & tailMask(floor & 7);
  if ((end & 7) !== 0) label[label.length - 1] = (label[label.length - 1] as number) & ~tailMask(end & 7);
  return label;
}

/** Count, measure and digest of an inner node from those of its children. Returns false if a sum is 2^53 or more. */
export function sumChildren(node: Node): boolean {
  const [left, right] = [node.left as Node, node.right as Node];
  node.count = left.count + right.count;
  node.measure = left.measure + right.measure;
  return node.count < NUMBER_LIMIT && node.measure < NUMBER_LIMIT;
}

/** The largest power of two below `n`, n > 1: the elements on the left side of a list. */
export function leftCount(n: number): number {
  let power = 2 ** Math.floor(Math.log2(n));
  while (power >= n) power /= 2;
  while (power * 2 < n) power *= 2;
  return power;
}

/** The encoding of section 3 of a shown node, whose children have digests. `path` leads to it and holds its own bits. */
export function encodeNode(kind: "map" | "list", node: Node, path: Uint8Array): Uint8Array {
  const tag = kind === "map" ? 0x00 : 0x10;
  if (node.kind === "empty") return Uint8Array.of(tag);
  if (node.kind === "leaf") {
    const target = [varint(node.target.length), node.target];
    if (kind === "list") return concat(Uint8Array.of(tag | 1), varint(node.measure), ...target);
    return concat(Uint8Array.of(tag | 1), varint(node.end >> 3), path.subarray(0, node.end >> 3), ...target);
  }
  const prefix = kind === "map" ? [varint(node.end), cutLabel(path, 0, node.end)] : [];
  const side = (child: Node) => [
    varint(child.count),
    ...(kind === "list" ? [varint(child.measure)] : []),
    child.digest as Uint8Array,
  ];
  return concat(Uint8Array.of(tag | 2), ...prefix, ...side(node.left as Node), ...side(node.right as Node));
}

/**
 * Compute digests, counts and measures that changes have removed, children first, without recursion.
 * Returns false if a sum is 2^53 or more.
 */
export function rehash(kind: "map" | "list", top: Node, hash: Hash): boolean {
  const path = pathBuffer();
  const open: { node: Node; next: 0 | 1 | 2 }[] = [{ node: top, next: 0 }];
  for (let frame = open.at(-1); frame !== undefined; frame = open.at(-1)) {
    const { node } = frame;
    if (node.digest === null && kind === "map" && frame.next === 0) writeLabel(path, node);
    if (node.digest === null && node.kind === "inner" && frame.next < 2) {
      if (kind === "map") writeBit(path, node.end, frame.next as 0 | 1);
      open.push({ node: (frame.next === 0 ? node.left : node.right) as Node, next: 0 });
      frame.next++;
      continue;
    }
    if (node.digest === null) {
      if (node.kind === "inner" && !sumChildren(node)) return false;
      node.digest = hash(encodeNode(kind, node, path));
    }
    open.pop();
  }
  return true;
}
