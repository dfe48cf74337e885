/** The children of a place in a map, from listings that are verified, and what a folder's attributes say about them. */

import { compare } from "../src/bytes.ts";
import { Cid, type Root } from "../src/cid.ts";
import { CoregwError } from "../src/errors.ts";
import { ATTRIBUTES_PATH, type Attributes, decodeAttributes } from "../src/folders.ts";
import { encodeKey } from "../src/key.ts";
import { verifyKey, verifyScan } from "../src/verify.ts";
import { visible } from "./dom.ts";
import type { Source } from "./source.ts";

/** A child: a target of its own, children of its own, or both. */
export interface Entry {
  readonly name: string;
  target: string | null;
  hasChildren: boolean;
}

/** Entries so far, where to continue, and the proofs that they were derived from. */
export interface Listing {
  readonly entries: Entry[];
  /** Null if the listing is complete. */
  readonly next: readonly string[] | null;
  readonly pages: { readonly proof: Uint8Array; readonly verify: (proof: Uint8Array) => unknown }[];
}

const PAGE_ENTRIES = 200;
const PAGES_AT_ONCE = 8;
const MAX_ATTRIBUTE_PAGES = 64;
/** No name of a file comes after it, so that continuing after it skips the rest of a child's own children. */
const LAST_NAME = "\u{10FFFF}";

/** List children of `prefix`, at most some pages of entries at once. */
export async function list(
  source: Source,
  root: Root,
  prefix: readonly string[],
  from: readonly string[] | null,
): Promise<Listing> {
  const found = new Map<string, Entry>();
  const pages: Listing["pages"] = [];
  let next = from;
  do {
    const options = { prefix, limit: PAGE_ENTRIES, ...(next === null ? {} : { after: next }) };
    const proof = await source.proveScan(root.cid.text, options);
    const verify = (bytes: Uint8Array) => verifyScan(root.cid, options, bytes);
    const { entries, more } = verify(proof);
    pages.push({ proof, verify });
    for (const { segments, target } of entries) collect(found, segments.slice(prefix.length), target);
    const last = entries.at(-1)?.segments;
    next = more && last !== undefined ? continueAfter(last, prefix.length) : null;
  } while (next !== null && pages.length < PAGES_AT_ONCE);
  return { entries: [...found.values()], next, pages };
}

function collect(found: Map<string, Entry>, below: readonly string[], target: string): void {
  const name = below[0];
  if (name === undefined) return; // the prefix itself
  const entry = found.get(name) ?? { name, target: null, hasChildren: false };
  if (below.length === 1) entry.target = target;
  else entry.hasChildren = true;
  found.set(name, entry);
}

/** After a descendant of a child: skip the child's other descendants. */
function continueAfter(last: readonly string[], depth: number): string[] {
  return last.length > depth + 1 ? [...last.slice(0, depth + 1), LAST_NAME] : [...last];
}

/** What a folder's attributes say of one level, read along with its listing. A name's record is one entry of their map. */
export class AttributeReader {
  readonly #source: Source;
  readonly #prefix: readonly string[];
  /** The map of attributes; null if there is none, it cannot be read, or all of it was. */
  #root: string | null;
  #after: readonly string[] | null = null;
  /** Records that were read, and not asked for yet. */
  readonly #ahead = new Map<string, Attributes>();
  /** Why there are none, or no more: what the root's maker wrote is no map of attributes. */
  problem: string | null = null;

  private constructor(source: Source, prefix: readonly string[], root: string | null) {
    this.#source = source;
    this.#prefix = prefix;
    this.#root = root;
  }

  static async open(source: Source, root: Root, prefix: readonly string[]): Promise<AttributeReader> {
    const proof = await source.proveKey(root.cid.text, ATTRIBUTES_PATH);
    const found = verifyKey(root.cid, ATTRIBUTES_PATH, proof);
    const reader = new AttributeReader(source, prefix, found);
    if (found !== null && new Cid(found).kind !== "map") reader.#refuse(`${ATTRIBUTES_PATH.join("/")} is not a map`);
    return reader;
  }

  /** Records by name, of the names after those of the last call, up to `last`, or of all. */
  async through(last: string | null): Promise<Map<string, Attributes>> {
    for (let page = 0; this.#root !== null && !this.#isPast(last); page++) {
      if (page === MAX_ATTRIBUTE_PAGES) this.#refuse("there are too many of them between these names");
      else await this.#page(this.#root);
    }
    const found = [...this.#ahead].filter(([name]) => last === null || comparePaths([name], [last]) <= 0);
    for (const [name] of found) this.#ahead.delete(name);
    return new Map(found);
  }

  #isPast(last: string | null): boolean {
    const name = this.#after?.[this.#prefix.length];
    return last !== null && name !== undefined && comparePaths([name], [last]) > 0;
  }

  async #page(root: string): Promise<void> {
    const options = {
      prefix: this.#prefix,
      limit: PAGE_ENTRIES,
      ...(this.#after === null ? {} : { after: this.#after }),
    };
    const { entries, more } = verifyScan(root, options, await this.#source.proveScan(root, options));
    for (const { segments, target } of entries) this.#take(segments, target);
    const last = entries.at(-1)?.segments;
    if (more && last !== undefined) this.#after = continueAfter(last, this.#prefix.length);
    else this.#root = null;
  }

  /** Keep a record that is in its CID. Records in payloads of their own are left out, as is what is further below. */
  #take(segments: readonly string[], target: string): void {
    const name = segments[this.#prefix.length];
    if (segments.length !== this.#prefix.length + 1 || name === undefined || new Cid(target).hashCode !== 0) return;
    try {
      this.#ahead.set(name, decodeAttributes(target));
    } catch (error) {
      if (!(error instanceof CoregwError)) throw error;
      this.#refuse(`the root’s maker wrote for “${visible(name, 100)}” ${error.message}`);
    }
  }

  #refuse(problem: string): void {
    this.problem ??= problem;
    this.#root = null;
  }
}

/** Compare paths as a map orders them. */
function comparePaths(a: readonly string[], b: readonly string[]): number {
  return compare(encodeKey(a), encodeKey(b));
}
