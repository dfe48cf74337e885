/** The children of a place in a map, from listings that are verified, and what a folder's attributes say about them. */

import { compare, toUtf8 } from "../src/bytes.ts";
import { Cid, type Root } from "../src/cid.ts";
import { CoregwError } from "../src/errors.ts";
import { ATTRIBUTES_PATH, type Attributes, decodeAttributes } from "../src/folders.ts";
import { encodeKey } from "../src/key.ts";
import { verifyKey, verifyScan } from "../src/verify.ts";
import { visible } from "./dom.ts";
import { fetchPayload, type Source, SourceError } from "./source.ts";

/** A child: a target of its own, children of its own, or both; symbolic links and empty folders have only attributes. */
export interface Entry {
  readonly name: string;
  target: string | null;
  hasChildren: boolean;
  known?: Attributes;
}

/** A proof, and the check that accepts it. */
export interface Proof {
  readonly bytes: Uint8Array;
  readonly verify: (proof: Uint8Array) => unknown;
}

/** A page of a listing. Longer ones are for folders of files: of a child that is a folder, one entry is enough. */
const [PAGE_ENTRIES, LONG_PAGE_ENTRIES] = [200, 1000];
const MAX_ATTRIBUTE_PAGES = 64;
const MAX_RECORD_BYTES = 2 ** 20;
/** Records that are fetched in the listing of a folder. */
const MAX_FETCHED_RECORDS = 64;
const MAX_PATH_BYTES = 4096;
const MAX_KEPT = 8;

/** Folders that were listed last, by root and prefix. */
const kept = new Map<string, Folder>();

/** A folder that is listed in steps. What was listed stays, so that who comes back finds it. */
export class Folder {
  readonly entries: Entry[] = [];
  isComplete = false;
  /** The proof of the first page. */
  first: Proof | null = null;
  /** The last child of the listing: the next page may have children of it. */
  #last: Entry | null = null;
  #after: readonly string[] | null = null;
  #limit = PAGE_ENTRIES;
  #fetched = 0;
  /** What is in flight, also for a view that was left. */
  #listing: Promise<void> | null = null;
  #attributes: AttributeReader | null = null;
  readonly #source: Source;
  readonly #root: Root;
  readonly #prefix: readonly string[];

  private constructor(source: Source, root: Root, prefix: readonly string[]) {
    this.#source = source;
    this.#root = root;
    this.#prefix = prefix;
  }

  /** The folder at a prefix, with what is known of it. */
  static at(source: Source, root: Root, prefix: readonly string[]): Folder {
    const key = JSON.stringify([root.cid.text, ...prefix]);
    const found = kept.get(key) ?? new Folder(source, root, prefix);
    kept.delete(key);
    kept.set(key, found);
    for (const oldest of [...kept.keys()].slice(0, -MAX_KEPT)) kept.delete(oldest);
    return found;
  }

  /** Why there are no attributes, or no more of them. */
  get problem(): string | null {
    return this.#attributes?.problem ?? null;
  }

  /** List one more page. Nothing is kept of one whose request or proof fails. */
  more(): Promise<void> {
    this.#listing ??= this.#page().finally(() => {
      this.#listing = null;
    });
    return this.#listing;
  }

  async #page(): Promise<void> {
    if (this.isComplete) return;
    const [root, prefix] = [this.#root, this.#prefix];
    const options = { prefix, limit: this.#limit, ...(this.#after === null ? {} : { after: this.#after }) };
    const proof = await this.#source.proveScan(root.cid.text, options);
    const verify = (bytes: Uint8Array) => verifyScan(root.cid, options, bytes);
    const { entries, more } = verify(proof);
    this.#attributes ??= await AttributeReader.open(this.#source, root, prefix);
    const last = more ? (entries.at(-1)?.segments ?? null) : null;
    const records = await this.#attributes.through(last === null ? null : (last[prefix.length] as string));
    const found = await this.#joined(entries, records);
    this.first ??= { bytes: proof, verify };
    this.entries.push(...found);
    this.#after = last === null ? null : continueAfter(last, prefix.length);
    this.#limit = entries.some(({ segments }) => segments.length > prefix.length + 1)
      ? PAGE_ENTRIES
      : LONG_PAGE_ENTRIES;
    this.isComplete = last === null;
  }

  /** The new children of a page, with their records, in order. */
  async #joined(page: readonly { segments: string[]; target: string }[], records: Records): Promise<Entry[]> {
    const found = new Map<string, Entry>();
    for (const { segments, target } of page) {
      const [name, ...below] = segments.slice(this.#prefix.length);
      if (name === undefined) continue; // the prefix itself
      const isContinued = this.#last?.name === name;
      const entry = (isContinued ? this.#last : found.get(name)) ?? { name, target: null, hasChildren: false };
      if (below.length > 0) entry.hasChildren = true;
      else entry.target = target;
      if (!isContinued) found.set(name, entry);
    }
    const last = [...found.values()].at(-1) ?? this.#last;
    for (const [name, { target, hasBelow }] of records) {
      const listed = found.get(name) ?? (last?.name === name ? last : null);
      const known = target === null ? undefined : await this.#read(name, target, listed !== null);
      if (listed === null && known?.kind === "file" && !hasBelow) continue; // of a file that is not there
      if (listed === null && isTopRecord([...this.#prefix, name]) && !hasBelow) continue;
      const entry = listed ?? { name, target: null, hasChildren: hasBelow };
      if (known !== undefined) entry.known = known;
      if (listed === null) found.set(name, entry);
    }
    this.#last = last;
    const keys = new Map([...found.keys()].map((name) => [name, encodeKey([name])]));
    const key = ({ name }: Entry) => keys.get(name) as Uint8Array;
    return [...found.values()].sort((a, b) => compare(key(a), key(b)));
  }

  /** A record. One in a payload of its own is fetched only if nothing else says what the entry is. */
  async #read(name: string, target: string, isListed: boolean): Promise<Attributes | undefined> {
    const isInside = new Cid(target).hashCode === 0;
    if (!isInside && (isListed || ++this.#fetched > MAX_FETCHED_RECORDS)) return undefined;
    try {
      return await this.#attributes?.read(name, target);
    } catch (error) {
      if (error instanceof SourceError) return undefined; // who opens the entry learns why
      throw error;
    }
  }
}

/** After a descendant of a child, skip the child's other ones: continue after the last path that may be below it. */
function continueAfter(last: readonly string[], depth: number): string[] {
  const child = last.slice(0, depth + 1);
  const room = MAX_PATH_BYTES - 1 - (toUtf8(child.join("/")) as Uint8Array).length;
  if (last.length === depth + 1) return child;
  const lastOfLength = ["", "\x7f", "\u07ff", "\uffff"]; // in UTF-8
  return [...child, "\u{10ffff}".repeat(room >> 2) + lastOfLength[room & 3]];
}

/** What the map of attributes has of a name: the target of its record, and whether it has something below it. */
type Records = Map<string, { target: string | null; hasBelow: boolean }>;

/** What a folder's attributes say of one level, read along with its listing. A name's record is one entry of their map. */
class AttributeReader {
  readonly #source: Source;
  readonly #prefix: readonly string[];
  /** The map of attributes; null if there is none, it cannot be read, or all of it was. */
  #root: string | null;
  #after: readonly string[] | null = null;
  /** Records that were read, and not asked for yet. */
  readonly #ahead: Records = new Map();
  /** Why there are none, or no more: what the root's maker wrote is no map of attributes. */
  problem: string | null = null;

  private constructor(source: Source, prefix: readonly string[], root: string | null) {
    this.#source = source;
    this.#prefix = prefix;
    this.#root = root;
  }

  static async open(source: Source, root: Root, prefix: readonly string[]): Promise<AttributeReader> {
    const found = await attributesRoot(source, root);
    const reader = new AttributeReader(source, prefix, found);
    if (found !== null && new Cid(found).kind !== "map") reader.#refuse(`${ATTRIBUTES_PATH.join("/")} is not a map`);
    return reader;
  }

  /** Records by name, of the names after those of the last call, up to `last`, or of all. */
  async through(last: string | null): Promise<Records> {
    for (let page = 0; this.#root !== null && !this.#isPast(last); page++) {
      if (page === MAX_ATTRIBUTE_PAGES) this.#refuse("there are too many of them between these names");
      else await this.#page(this.#root);
    }
    const found = [...this.#ahead].filter(([name]) => last === null || compareNames(name, last) <= 0);
    for (const [name] of found) this.#ahead.delete(name);
    return new Map(found);
  }

  /** Decode a record; undefined if it is malformed, which `problem` says. */
  async read(name: string, target: string): Promise<Attributes | undefined> {
    try {
      const known = await readRecord(target);
      if (!isTopRecord([...this.#prefix, name])) return known;
      if (known.kind !== "folder") this.#refuse("the reserved name has a record that is not the folder’s own");
      return undefined;
    } catch (error) {
      if (!(error instanceof CoregwError)) throw error;
      this.#refuse(`the root’s maker wrote for “${visible(name, 100)}” ${error.message}`);
      return undefined;
    }
  }

  #isPast(last: string | null): boolean {
    const name = this.#after?.[this.#prefix.length];
    return last !== null && name !== undefined && compareNames(name, last) > 0;
  }

  async #page(root: string): Promise<void> {
    const options = {
      prefix: this.#prefix,
      limit: LONG_PAGE_ENTRIES,
      ...(this.#after === null ? {} : { after: this.#after }),
    };
    const { entries, more } = verifyScan(root, options, await this.#source.proveScan(root, options));
    for (const { segments, target } of entries) {
      const [name, ...below] = segments.slice(this.#prefix.length);
      if (name === undefined) continue;
      const record = this.#ahead.get(name) ?? { target: null, hasBelow: false };
      if (below.length > 0) record.hasBelow = true;
      else record.target = target;
      this.#ahead.set(name, record);
    }
    const last = entries.at(-1)?.segments;
    if (more && last !== undefined) this.#after = continueAfter(last, this.#prefix.length);
    else this.#root = null;
  }

  #refuse(problem: string): void {
    this.problem ??= problem;
    this.#root = null;
  }
}

/** Whether a path is where the map of attributes has the record of the folder itself. */
function isTopRecord(path: readonly string[]): boolean {
  return path.length === 1 && path[0] === ATTRIBUTES_PATH[0];
}

/** What a folder's map binds its attributes to, proven; null if it has none. */
async function attributesRoot(source: Source, root: Root): Promise<string | null> {
  return verifyKey(root.cid, ATTRIBUTES_PATH, await source.proveKey(root.cid.text, ATTRIBUTES_PATH));
}

async function readRecord(target: string): Promise<Attributes> {
  const isInside = new Cid(target).hashCode === 0;
  return isInside ? decodeAttributes(target) : decodeAttributes(target, await fetchPayload(target, MAX_RECORD_BYTES));
}

/** The root of a folder's map of attributes, proven; null if it has none. */
export async function attributesMap(source: Source, root: Root): Promise<string | null> {
  const found = await attributesRoot(source, root);
  return found !== null && new Cid(found).kind === "map" ? found : null;
}

/** What a map of attributes says of one path, with the proof; null if it does not name it. */
export async function recordAt(
  source: Source,
  map: string,
  path: readonly string[],
): Promise<{ known: Attributes; proof: Proof } | null> {
  if (isTopRecord(path)) return null;
  const verify = (bytes: Uint8Array) => verifyKey(map, path, bytes);
  const bytes = await source.proveKey(map, path);
  const target = verify(bytes);
  return target === null ? null : { known: await readRecord(target), proof: { bytes, verify } };
}

/** Compare names as a map orders them. */
function compareNames(a: string, b: string): number {
  return compare(encodeKey([a]), encodeKey([b]));
}
