/** The children of a place in a map, from listings that are verified, and what a folder's attributes say about them. */

import type { Root } from "../src/cid.ts";
import { ATTRIBUTES_PATH, type Attributes, decodeAttributes } from "../src/folders.ts";
import { verifyKey, verifyScan } from "../src/verify.ts";
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

/** Reader of the map of attributes that a folder's map names. Null if it names none. */
export async function attributesRoot(source: Source, root: Root): Promise<string | null> {
  const proof = await source.proveKey(root.cid.text, ATTRIBUTES_PATH);
  return verifyKey(root.cid, ATTRIBUTES_PATH, proof);
}

/** What the records of these children say, by name. A record in a payload of its own is left out. */
export async function attributesOf(
  source: Source,
  attributes: string,
  prefix: readonly string[],
  names: readonly string[],
): Promise<Map<string, Attributes>> {
  const known = new Map<string, Attributes>();
  let next: readonly string[] | null = null;
  for (let page = 0; page < PAGES_AT_ONCE; page++) {
    const options: { prefix: readonly string[]; limit: number; after?: readonly string[] } = {
      prefix,
      limit: PAGE_ENTRIES,
    };
    if (next !== null) options.after = next;
    const { entries, more } = verifyScan(attributes, options, await source.proveScan(attributes, options));
    for (const { segments, target } of entries) {
      const [name] = segments.slice(prefix.length);
      if (segments.length === prefix.length + 1 && name !== undefined && target.startsWith("bafyq"))
        known.set(name, decodeAttributes(target));
    }
    const last = entries.at(-1)?.segments;
    if (!more || last === undefined || (last[prefix.length] ?? "") > (names.at(-1) ?? "")) break;
    next = continueAfter(last, prefix.length);
  }
  return known;
}
