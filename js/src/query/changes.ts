/** Changes of a map or a list, replayed on a pruned tree (section 4). */

import { bitAt, compare, equal } from "../bytes.ts";
import { Cid, type CidLike } from "../cid.ts";
import { Conflict, InvalidInput } from "../errors.ts";
import { encodeKey, type Path } from "../key.ts";
import { cutLabel, leftCount, Node, pathBuffer, writeBit, writeLabel } from "../tree/node.ts";
import type { Tree } from "../tree/pruned.ts";
import { descend } from "./map.ts";

/** One change: `before` null inserts, `after` null removes. */
export interface Change {
  /** Of a map. */
  readonly path?: Path;
  /** Of a list. */
  readonly index?: number;
  readonly before: CidLike | null;
  readonly after: CidLike | null;
  /** The measure of a list's element after the change; 1 if absent. */
  readonly size?: number | null;
}

function invalidChange(message: string): never {
  throw new Conflict("invalid_change", message);
}

function targets(change: Change): { before: Uint8Array | null; after: Uint8Array | null } {
  const bytes = (cid: CidLike | null) => (cid === null ? null : new Cid(cid).bytes);
  const both = { before: bytes(change.before), after: bytes(change.after) };
  if (change.size != null && (change.path !== undefined || both.after === null))
    throw new InvalidInput("invalid_request", "a size is that of a list's element after a change");
  if (both.before === null && both.after === null) invalidChange("a change with neither before nor after");
  return both;
}

/** Refuse a target that is not the one that the change names. */
function checkBefore(found: Uint8Array | null, before: Uint8Array | null, where: string): void {
  if (found === null ? before !== null : before === null || !equal(found, before))
    throw new Conflict("before_mismatch", `${where}: before is ${found === null ? "absent" : new Cid(found)}`);
}

/** The key of a change of a map. */
export function keyOf({ path }: Change): Uint8Array {
  if (path === undefined) throw new InvalidInput("invalid_request", "a change of a map has a path");
  return encodeKey(path);
}

/** Apply changes to a map, in key order. The digests on the changed paths are null afterwards. */
export function changeMap(tree: Tree, changes: readonly Change[]): void {
  const keyed = changes.map((change) => ({ key: keyOf(change), ...targets(change) }));
  keyed.sort((a, b) => compare(a.key, b.key));
  keyed.forEach(({ key }, i) => {
    if (i > 0 && equal((keyed[i - 1] as { key: Uint8Array }).key, key)) invalidChange("a path occurs twice");
  });
  for (const { key, before, after } of keyed) {
    const above: { node: Node; bit: 0 | 1 }[] = [];
    const { node, bit } = descend(tree, key, (inner, side) => above.push({ node: inner, bit: side }));
    checkBefore(bit < 0 ? node.target : null, before, "a path");
    if (before !== null && after !== null && equal(before, after)) invalidChange("a change without effect");
    if (after === null) remove(tree, key, above);
    else if (before !== null) {
      replaceLeaf(node, after);
      dirty(above);
    } else insert(tree, key, after, node, bit, above);
  }
}

type Above = { node: Node; bit: 0 | 1 }[];

/** Remove the digests above a change. */
function dirty(above: Above): void {
  for (const { node } of above) node.digest = null;
}

function replaceLeaf(leaf: Node, target: Uint8Array): void {
  leaf.target = target;
  leaf.digest = null;
}

/** Put a node in the place of a child of the last inner node of a descent, or at the top. */
function put(tree: Tree, above: Above, node: Node): void {
  const parent = above.at(-1);
  if (parent === undefined) tree.top = node;
  else if (parent.bit === 0) parent.node.left = node;
  else parent.node.right = node;
  dirty(above);
}

function newNode(kind: "leaf" | "inner" | "empty"): Node {
  const node = new Node(kind);
  node.isVisited = true;
  return node;
}

function insert(tree: Tree, key: Uint8Array, target: Uint8Array, at: Node, bit: number, above: Above): void {
  const leaf = newNode("leaf");
  leaf.count = 1;
  leaf.target = target;
  leaf.end = 8 * key.length;
  if (at.kind === "empty") {
    leaf.label = key;
    put(tree, above, leaf);
    return;
  }
  const inner = newNode("inner");
  inner.floor = at.floor;
  inner.end = bit;
  inner.label = cutLabel(key, inner.floor, bit);
  leaf.floor = bit + 1;
  leaf.label = cutLabel(key, leaf.floor, leaf.end);
  const path = pathBuffer();
  path.set(key);
  relabel(at, path, bit + 1);
  [inner.left, inner.right] = bitAt(key, bit) === 0 ? [leaf, at] : [at, leaf];
  put(tree, above, inner);
}

/** Give a node another floor; `path` leads to the node. A stub has no bits of its own. */
function relabel(node: Node, path: Uint8Array, floor: number): void {
  writeLabel(path, node);
  node.label = cutLabel(path, floor, Math.max(node.end, floor));
  node.floor = floor;
}

function remove(tree: Tree, key: Uint8Array, above: Above): void {
  const parent = above.pop();
  if (parent === undefined) {
    tree.top = newNode("empty");
    return;
  }
  const { node, bit } = parent;
  const sibling = (bit === 0 ? node.right : node.left) as Node;
  if (sibling.kind !== "stub") {
    const path = pathBuffer();
    path.set(key);
    writeBit(path, node.end, bit === 0 ? 1 : 0);
    relabel(sibling, path, node.floor);
  } else {
    sibling.floor = node.floor;
  }
  put(tree, above, sibling);
}

interface ListChange {
  readonly index: number;
  readonly before: Uint8Array | null;
  readonly after: Uint8Array | null;
  readonly size: number;
}

/** Apply changes to a list: replacements, then either appends or one truncation. */
export function changeList(tree: Tree, changes: readonly Change[]): void {
  const sorted = changes.map(listChange).sort((a, b) => a.index - b.index);
  sorted.forEach(({ index }, i) => {
    if (sorted[i - 1]?.index === index) invalidChange("an index occurs twice");
  });
  const length = tree.visit(tree.top).count;
  for (const change of sorted) checkElement(tree, change, length);
  for (const { index, before, after, size } of sorted)
    if (before !== null && after !== null) replaceElement(tree, index, after, size);
  const appends = sorted.filter(({ before }) => before === null);
  const removed = sorted.filter(({ after }) => after === null);
  if (appends.length > 0 && removed.length > 0) invalidChange("appends together with removals");
  appends.forEach(({ index }, i) => {
    if (index !== length + i) invalidChange("an append leaves a gap");
  });
  removed.forEach(({ index }, i) => {
    if (index !== length - removed.length + i) invalidChange("removals are not a suffix of the list");
  });
  for (const { after, size } of appends) append(tree, after as Uint8Array, size);
  if (removed.length > 0) truncate(tree, length - removed.length);
}

function listChange(change: Change): ListChange {
  const { index } = change;
  if (index === undefined || !Number.isSafeInteger(index) || index < 0)
    throw new InvalidInput("invalid_request", "a change of a list has an index below 2^53");
  const size = change.size ?? 1;
  if (!Number.isSafeInteger(size) || size < 1) throw new InvalidInput("invalid_request", "a size is 1 to 2^53 - 1");
  return { index, ...targets(change), size };
}

function checkElement(tree: Tree, change: ListChange, length: number): void {
  const { index, before, after, size } = change;
  let node = tree.visit(tree.top);
  for (let at = index; index < length && node.kind !== "leaf"; ) {
    const left = node.left as Node;
    const isLeft = at < left.count;
    if (!isLeft) at -= left.count;
    node = tree.visit(isLeft ? left : (node.right as Node));
  }
  checkBefore(index < length ? node.target : null, before, `index ${index}`);
  if (before !== null && after !== null && equal(before, after) && size === node.measure)
    invalidChange("a change without effect");
}

function replaceElement(tree: Tree, index: number, target: Uint8Array, size: number): void {
  let node = tree.visit(tree.top);
  for (let at = index; node.kind !== "leaf"; ) {
    node.digest = null;
    const left = node.left as Node;
    const isLeft = at < left.count;
    if (!isLeft) at -= left.count;
    node = tree.visit(isLeft ? left : (node.right as Node));
  }
  replaceLeaf(node, target);
  node.measure = size;
}

function isPowerOfTwo(count: number): boolean {
  return count === 1 || leftCount(count) * 2 === count;
}

function append(tree: Tree, target: Uint8Array, size: number): void {
  const leaf = newNode("leaf");
  leaf.count = 1;
  leaf.measure = size;
  leaf.target = target;
  let node = tree.top;
  if (node.kind === "empty") {
    tree.top = leaf;
    return;
  }
  let parent: Node | null = null;
  while (!isPowerOfTwo(node.count)) {
    node = tree.visit(node);
    node.digest = null;
    node.count++;
    parent = node;
    node = node.right as Node;
  }
  const joint = newNode("inner");
  [joint.left, joint.right, joint.count] = [node, leaf, node.count + 1];
  if (parent === null) tree.top = joint;
  else parent.right = joint;
}

function truncate(tree: Tree, length: number): void {
  if (length === 0) {
    tree.top = newNode("empty");
    return;
  }
  let parent: Node | null = null;
  let [node, rest] = [tree.top, length];
  while (rest < node.count) {
    node = tree.visit(node);
    const left = node.left as Node;
    if (rest > left.count) {
      node.digest = null;
      parent = node;
      rest -= left.count;
      node.count = left.count + rest;
      node = node.right as Node;
    } else {
      node = left;
      if (parent === null) tree.top = node;
      else parent.right = node;
    }
  }
}
