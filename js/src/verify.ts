/** Verifiers of proofs: each runs a query on a pruned tree, and returns what is proven (section 4). */

import { Cid, type CidLike, parseRoot, type Root, rootCid } from "./cid.ts";
import { InvalidInput, ProofError } from "./errors.ts";
import { hashOf } from "./hashes.ts";
import { encodeKey, type Path, windowOf } from "./key.ts";
import { type Change, changeList, changeMap, keyOf } from "./query/changes.ts";
import { diff } from "./query/diff.ts";
import { getElement, getRange } from "./query/list.ts";
import { checkKeys, get, getMany } from "./query/map.ts";
import { scan } from "./query/scan.ts";
import { rehash } from "./tree/node.ts";
import { MAX_BITS, NO_LIMITS } from "./tree/parse.ts";
import { MAX_KEY_PROOF, MAX_PROOF, type ProofLimits, type Tree, verifyQuery } from "./tree/pruned.ts";

/** The text of a CID, or null. */
export function textOf(target: Uint8Array | null): string | null {
  return target === null ? null : new Cid(target).text;
}

/** @throws InvalidInput unless `value` is an integer from `least` to 2^53 - 1. */
export function checkInteger(what: string, value: number, least = 0): void {
  if (!Number.isSafeInteger(value) || value < least)
    throw new InvalidInput("invalid_request", `${what}: expected an integer from ${least} to 2^53 - 1`);
}

function ask<T>(root: Root, proof: Uint8Array, limits: ProofLimits, query: (tree: Tree) => T): T {
  return verifyQuery([{ root, proof }], limits, query as (...trees: Tree[]) => T);
}

/** The limits of a proof for keys: each is descended along to one leaf at most, or to a node whose bits diverge from it. */
function limitsOfKeys(keys: readonly Uint8Array[], bytes = MAX_PROOF): ProofLimits {
  const visited = keys.reduce((sum, key) => sum + 8 * key.length + 1, 0);
  return { bytes, nodes: 2 * visited + 1, leaves: keys.length };
}

/**
 * The limits of the proof of a listing: one leaf may come before its entries, and one after. They are joined by fewer nodes,
 * besides those on the paths to the first and the last.
 */
function limitsOfScan(lo: Uint8Array | null, entries: number): ProofLimits {
  const leaves = entries + 2;
  const visited = 2 * leaves + 8 * (lo?.length ?? 0) + MAX_BITS;
  return { bytes: MAX_PROOF, nodes: 2 * visited + 1, leaves };
}

/**
 * The limits of each proof of a diff. A leaf is a difference; or it is equal to one below a node of the other map, all other
 * leaves of which are differences. At either end of the window there may be two that are outside, or whose counterparts are.
 * One more may follow the last difference, and one wait for it.
 */
function limitsOfDiff(entries: number): ProofLimits {
  return { ...NO_LIMITS, bytes: MAX_PROOF, leaves: entries + 6 };
}

/**
 * Verify the proof of one key of a map. Returns the target's CID, or null if the key is proven absent. O(proof).
 * @throws InvalidInput if the root or the path is malformed.
 * @throws ProofError if the proof does not prove it.
 */
export function verifyKey(root: CidLike, path: Path, proof: Uint8Array): string | null {
  const [map, key] = [parseRoot(root, "map"), encodeKey(path)];
  return textOf(ask(map, proof, limitsOfKeys([key], MAX_KEY_PROOF), (tree) => get(tree, key)));
}

/**
 * Verify a multiproof of 1 to 10,000 distinct keys. Returns their targets in the same order. O(proof + descents).
 * @throws InvalidInput, ProofError As `verifyKey`.
 */
export function verifyKeys(root: CidLike, paths: readonly Path[], proof: Uint8Array): (string | null)[] {
  const [map, keys] = [parseRoot(root, "map"), paths.map(encodeKey)];
  checkKeys(keys);
  return ask(map, proof, limitsOfKeys(keys), (tree) => getMany(tree, keys)).map(textOf);
}

/** An element of a list: its target and measure, null if the list is shorter, and the number of elements. */
export interface Element {
  readonly target: string | null;
  readonly size: number | null;
  readonly length: number;
}

/** Verify the proof of one element of a list. O(log length). Throws as `verifyKey`. */
export function verifyIndex(root: CidLike, index: number, proof: Uint8Array): Element {
  const list = parseRoot(root, "list");
  checkInteger("index", index);
  const { target, measure, length } = ask(list, proof, { ...NO_LIMITS, bytes: MAX_KEY_PROOF }, (tree) =>
    getElement(tree, index),
  );
  return { target: textOf(target), size: measure, length };
}

/** The elements of a list that intersect a range. */
export interface Range {
  readonly segments: string[];
  readonly sizes: number[];
  /** Where the first segment starts; null if there is none. */
  readonly offset: number | null;
  readonly length: number;
  readonly totalSize: number;
}

/** Verify the proof of a range, in the unit of the list's measures; without `end` up to the total. O(proof). */
export function verifyRange(root: CidLike, start: number, end: number | undefined, proof: Uint8Array): Range {
  const list = parseRoot(root, "list");
  checkInteger("start", start);
  if (end !== undefined) checkInteger("end", end);
  const span = ask(list, proof, { ...NO_LIMITS, bytes: MAX_PROOF }, (tree) => getRange(tree, start, end));
  return { ...span, segments: span.segments.map((each) => textOf(each) as string) };
}

/** The part of a map that is listed or compared. */
export interface WindowOptions {
  /** Only this path and those below it. */
  readonly prefix?: Path;
  /** Only what comes after this path, which lies in the window. */
  readonly after?: Path;
  /** At least 1. */
  readonly limit: number;
}

/** Entries of a listing, and whether more follow. */
export interface Scan {
  readonly entries: { segments: string[]; target: string }[];
  readonly more: boolean;
}

/** Verify the proof of a listing: nothing between its first and its last entry is withheld. O(proof). */
export function verifyScan(root: CidLike, options: WindowOptions, proof: Uint8Array): Scan {
  const [map, window] = [parseRoot(root, "map"), windowOf(options.prefix ?? [], options.after)];
  checkInteger("limit", options.limit, 1);
  const { entries, more } = ask(map, proof, limitsOfScan(window.lo, options.limit), (tree) =>
    scan(tree, window, options.limit),
  );
  return { entries: entries.map(({ segments, target }) => ({ segments, target: textOf(target) as string })), more };
}

/** Differences between two maps; `before` and `after` are null where the map does not have the path. */
export interface Diff {
  readonly entries: { segments: string[]; before: string | null; after: string | null }[];
  readonly more: boolean;
}

/** Verify the two proofs of a diff of two maps of one suite. O(proofs). */
export function verifyDiff(
  roots: { readonly a: CidLike; readonly b: CidLike },
  options: WindowOptions,
  proofs: { readonly a: Uint8Array; readonly b: Uint8Array },
): Diff {
  const [a, b] = [parseRoot(roots.a, "map"), parseRoot(roots.b, "map")];
  if (a.suite !== b.suite) throw new InvalidInput("kind_mismatch", "two maps of different suites");
  const window = windowOf(options.prefix ?? [], options.after);
  checkInteger("limit", options.limit, 1);
  const both = [
    { root: a, proof: proofs.a },
    { root: b, proof: proofs.b },
  ];
  const { entries, more } = verifyQuery(both, limitsOfDiff(options.limit), (first, second) =>
    diff(first as Tree, second as Tree, window, options.limit),
  );
  return {
    entries: entries.map((each) => ({ ...each, before: textOf(each.before), after: textOf(each.after) })),
    more,
  };
}

/**
 * Verify a transition: derive the root that changes of a map or list lead to. O(proof + descents).
 * @throws Conflict if the changes do not fit the tree: `before_mismatch` or `invalid_change`.
 * @throws InvalidInput, ProofError As `verifyKey`.
 */
export function verifyChanges(root: CidLike, changes: readonly Change[], proof: Uint8Array): string {
  const base = parseRoot(root);
  if (changes.length === 0) throw new InvalidInput("invalid_request", "no changes");
  const limits = base.kind === "map" ? limitsOfKeys(changes.map(keyOf)) : { ...NO_LIMITS, bytes: MAX_PROOF };
  return ask(base, proof, limits, (tree) => {
    if (base.kind === "map") changeMap(tree, changes);
    else changeList(tree, changes);
    if (!rehash(base.kind, tree.top, hashOf(base.suite.code))) throw new ProofError("a sum is not below 2^53");
    return rootCid(base.kind, base.suite, tree.top.digest as Uint8Array).text;
  });
}
