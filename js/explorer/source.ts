/** Where proofs and payloads come from: a gateway, or the files of a static tree. Neither is trusted. */

import { concat, toHex, varint } from "../src/bytes.ts";
import { Cid, identityPayload, verifyPayload } from "../src/cid.ts";
import { fromBase64 } from "../src/multibase.ts";
import { MAX_PAGE, PagedTree } from "../src/pages.ts";
import { isUnsigned, type PublishedRecord } from "../src/publications.ts";
import type { WindowOptions } from "../src/verify.ts";
import { visible } from "./dom.ts";

/** What a source has of a name: all revisions with a signed note for them, or the newest one without. Not verified. */
export interface PublishedHistory {
  readonly note: string | null;
  readonly records: readonly PublishedRecord[];
}

/** A failure that the source reports; what it says is not proven. Status 0: it did not answer, or not to the end. */
export class SourceError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export interface Source {
  readonly about: { readonly kind: "gateway" | "static"; readonly version?: string };
  proveKey(root: string, path: readonly string[]): Promise<Uint8Array>;
  proveIndex(root: string, index: number): Promise<Uint8Array>;
  proveRange(root: string, start: number, end: number): Promise<Uint8Array>;
  proveScan(root: string, options: WindowOptions): Promise<Uint8Array>;
  proveDiff(a: string, b: string, options: WindowOptions): Promise<{ a: Uint8Array; b: Uint8Array }>;
  /** The history of a name that is not signed, which a gateway shows to its operator. */
  unsignedHistory(scope: string, name: string, token: string): Promise<PublishedRecord[]>;
  /** What everybody may read of a name, or null if nothing is published under it. */
  published(scope: string, name: string): Promise<PublishedHistory | null>;
  /** The newest records of all names of a scope, which only a gateway lists. */
  namesOf(scope: string, token: string): Promise<PublishedRecord[]>;
}

const MAX_RESPONSE_BYTES = 80 * 2 ** 20;
const MAX_RECORD_BYTES = 4096;
const MAX_SILENCE_SECONDS = 60;
const MAX_MESSAGE = 300;
const MAX_REVISIONS = 10_000;
const MAX_NAMES = 10_000;

/** Fetch at most `limit` bytes of a response, whatever its headers say. Gives a server up that is silent for a minute. */
async function fetchBytes(
  url: string,
  limit: number,
  init: RequestInit = {},
): Promise<{ status: number; body: Uint8Array }> {
  const silence = new AbortController();
  const give = () => silence.abort();
  let timer = setTimeout(give, MAX_SILENCE_SECONDS * 1000);
  const parts: Uint8Array[] = [];
  let [status, size] = [0, 0];
  try {
    const response = await fetch(url, { credentials: "omit", signal: silence.signal, ...init });
    const reader = response.body?.getReader();
    status = response.status;
    for (let read = await reader?.read(); read?.value !== undefined; read = await reader?.read()) {
      clearTimeout(timer);
      timer = setTimeout(give, MAX_SILENCE_SECONDS * 1000);
      size += read.value.length;
      if (size > limit) {
        silence.abort();
        throw new SourceError(status, `the response is longer than ${limit} bytes`);
      }
      parts.push(read.value);
    }
  } catch (error) {
    if (error instanceof SourceError) throw error;
    const why = silence.signal.aborted ? `sent nothing for ${MAX_SILENCE_SECONDS} s` : "cannot be reached";
    throw new SourceError(0, size === 0 ? `the server ${why}` : "the connection broke before the answer was complete");
  } finally {
    clearTimeout(timer);
  }
  const body = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    body.set(part, at);
    at += part.length;
  }
  return { status, body };
}

/** The name of a payload: the files of a static tree have the codec `raw`, whatever a CID says of its content. */
function payloadName(cid: string): string {
  const { hashCode, digest } = new Cid(cid);
  return new Cid(concat(Uint8Array.of(1, 0x55), varint(hashCode), varint(digest.length), digest)).text;
}

/** Fetch the payload of a CID and compare it. Identity payloads are in the CID. */
export async function fetchPayload(cid: string, limit: number): Promise<Uint8Array> {
  const inside = identityPayload(cid);
  if (inside !== null) return inside;
  const { status, body } = await fetchBytes(`v1/cas/${payloadName(cid)}`, limit);
  if (status !== 200) throw new SourceError(status, "the payload is not available here");
  verifyPayload(cid, body);
  return body;
}

// biome-ignore lint/suspicious/noExplicitAny: JSON of a source, of which only what is verified is used
type Any = any;

async function fetchJson(url: string, limit: number, init?: RequestInit): Promise<{ status: number; json: Any }> {
  const { status, body } = await fetchBytes(url, limit, init);
  return { status, json: parseJson(status, body) };
}

function parseJson(status: number, body: Uint8Array): Any {
  try {
    return JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw new SourceError(status, "the response is not JSON");
  }
}

/** What a source says of its failure: its own words, and marked as such. */
function refusal(status: number, json: Any): SourceError {
  return new SourceError(status, `the source says “${visible(`${json?.error}: ${json?.message}`, MAX_MESSAGE)}”`);
}

function unbase64(text: unknown): Uint8Array {
  const bytes = typeof text === "string" ? fromBase64(text) : null;
  if (bytes === null) throw new SourceError(200, "the response has no proof");
  return bytes;
}

/** A gateway's answers. Only the proofs in them are used: the answers are derived from these. */
class GatewaySource implements Source {
  readonly about;

  constructor(version: string) {
    this.about = { kind: "gateway" as const, version };
  }

  async #ask(url: string, body?: unknown): Promise<Any> {
    const init =
      body === undefined
        ? {}
        : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const { status, json } = await fetchJson(url, MAX_RESPONSE_BYTES, init);
    if (status === 200) return json;
    if (json?.details?.prooflist !== undefined) return json.details;
    throw refusal(status, json);
  }

  async #step(url: string, body: unknown): Promise<Uint8Array> {
    return unbase64((await this.#ask(url, body))?.prooflist?.steps?.[0]?.proof);
  }

  proveKey(root: string, path: readonly string[]): Promise<Uint8Array> {
    return this.#step("v1/map-proof", { profile: "core.map-proof/v0alpha1", root, key: path });
  }

  proveIndex(root: string, index: number): Promise<Uint8Array> {
    return this.#read(root, { kind: "list_index", index });
  }

  proveRange(root: string, start: number, end: number): Promise<Uint8Array> {
    return this.#read(root, { kind: "list_range", start, end });
  }

  #read(root: string, query: unknown): Promise<Uint8Array> {
    return this.#step("v1/read", { profile: "core.read/v0alpha1", root, query });
  }

  proveScan(root: string, { prefix = [], after, limit }: WindowOptions): Promise<Uint8Array> {
    return this.#step("v1/scan", { profile: "core.scan/v0alpha1", root, prefix, after, limit });
  }

  async proveDiff(a: string, b: string, { prefix = [], after, limit }: WindowOptions) {
    const query = new URLSearchParams({ limit: String(limit) });
    if (prefix.length > 0) query.set("prefix", joined(prefix));
    if (after !== undefined) query.set("after", joined(after));
    const { proofs } = await this.#ask(`v1/roots/${a}/diff/${b}?${query}`);
    return { a: unbase64(proofs?.a), b: unbase64(proofs?.b) };
  }

  async unsignedHistory(scope: string, name: string, token: string): Promise<PublishedRecord[]> {
    const url = `${recordUrl(scope, name)}/history`;
    const init = { headers: { authorization: `Bearer ${token}` } };
    const { status, json } = await fetchJson(url, MAX_RESPONSE_BYTES, init);
    if (status !== 200) throw refusal(status, json);
    return parseRecords(json);
  }

  async namesOf(scope: string, token: string): Promise<PublishedRecord[]> {
    const records: PublishedRecord[] = [];
    for (let next: string | null = ""; next !== null; ) {
      const url = `admin/v1/scopes/${encodeURIComponent(scope)}/roots${next === "" ? "" : `?after=${encodeURIComponent(next)}`}`;
      const init = { headers: { authorization: `Bearer ${token}` } };
      const { status, json } = await fetchJson(url, MAX_RESPONSE_BYTES, init);
      if (status !== 200) throw refusal(status, json);
      const found = parseRecords(json);
      if (found.some(({ name }) => typeof name !== "string")) throw new SourceError(200, "a record has no name");
      records.push(...found);
      const after: unknown = json?.next;
      if (records.length > MAX_NAMES) throw new SourceError(200, `the scope has more than ${MAX_NAMES} names`);
      next = typeof after === "string" && found.length > 0 && after > next ? after : null;
    }
    return records;
  }

  async published(scope: string, name: string): Promise<PublishedHistory | null> {
    const url = `v1/publications/${encodeURIComponent(scope)}/${encodeURIComponent(name)}`;
    const { status, json } = await fetchJson(url, MAX_RESPONSE_BYTES);
    if (status === 404) return null;
    if (status !== 200) throw refusal(status, json);
    if (isUnsigned(json)) return { note: null, records: [parseRecord(json.record)] };
    const records: PublishedRecord[] = [];
    for (let next: string | null = "0"; next !== null; ) {
      const page: Any = await this.#ask(`${url}/entries?after=${next}`);
      const found = parseRecords(page);
      records.push(...found);
      if (found.length === 0 || records.length > MAX_REVISIONS)
        throw new SourceError(200, `the history is not one of 1 to ${MAX_REVISIONS} revisions`);
      next = page.next === undefined ? null : String(records.length);
    }
    return { note: String(json?.checkpoint), records };
  }
}

function parseRecords(json: Any): PublishedRecord[] {
  return (Array.isArray(json?.records) ? json.records : []).map(parseRecord);
}

function joined(path: string | readonly string[]): string {
  return typeof path === "string" ? path : path.join("/");
}

function recordUrl(scope: string, name: string): string {
  return `admin/v1/scopes/${encodeURIComponent(scope)}/roots/${encodeURIComponent(name)}`;
}

function parseRecord(json: Any): PublishedRecord {
  if (typeof json?.root !== "string" || typeof json.published_at !== "string" || !Number.isSafeInteger(json.revision))
    throw new SourceError(200, "the response is not a record of a published name");
  return json;
}

/** A static tree: this page gets pages, and makes the proofs of its own answers, which it then verifies like any other. */
class StaticSource implements Source {
  readonly about = { kind: "static" as const };
  readonly #trees = new Map<string, PagedTree>();

  async #tree(root: string): Promise<PagedTree> {
    const known = this.#trees.get(root);
    if (known !== undefined) return known;
    const opened = await PagedTree.open(root, {
      root: async (cid) => this.#file(`v1/roots/${cid}`),
      page: async (digest) => {
        const page = await this.#file(`v1/pages/${toHex(digest)}`);
        if (page === null) throw new SourceError(404, "a page of the tree is missing here");
        return page;
      },
    });
    if (opened === null) throw new SourceError(404, "the root is not among these files");
    this.#trees.set(root, opened);
    return opened;
  }

  async #file(url: string): Promise<Uint8Array | null> {
    const { status, body } = await fetchBytes(url, MAX_PAGE);
    if (status === 404) return null;
    if (status !== 200) throw new SourceError(status, `${url} cannot be read`);
    return body;
  }

  async proveKey(root: string, path: readonly string[]): Promise<Uint8Array> {
    return (await this.#tree(root)).proveKey(path);
  }

  async proveIndex(root: string, index: number): Promise<Uint8Array> {
    return (await this.#tree(root)).proveIndex(index);
  }

  async proveRange(root: string, start: number, end: number): Promise<Uint8Array> {
    return (await this.#tree(root)).proveRange(start, end);
  }

  async proveScan(root: string, options: WindowOptions): Promise<Uint8Array> {
    return (await this.#tree(root)).proveScan(options);
  }

  async proveDiff(a: string, b: string, options: WindowOptions) {
    return (await this.#tree(a)).proveDiff(await this.#tree(b), options);
  }

  async unsignedHistory(): Promise<PublishedRecord[]> {
    throw new SourceError(404, "a static tree has no histories");
  }

  async namesOf(): Promise<never> {
    throw new SourceError(404, "files cannot list names");
  }

  async published(scope: string, name: string): Promise<PublishedHistory | null> {
    const { status, body } = await fetchBytes(recordUrl(scope, name), MAX_RECORD_BYTES);
    if (status === 404) return null;
    if (status !== 200) throw new SourceError(status, "the record of the name cannot be read");
    return { note: null, records: [parseRecord(parseJson(status, body))] };
  }
}

/** What serves this page: a gateway says so in JSON at the page's own address; a web server has nothing but files. */
export async function findSource(): Promise<Source> {
  try {
    const { status, json } = await fetchJson("./", 2 ** 20, { headers: { accept: "application/json" } });
    if (status === 200 && json?.service === "coregw") return new GatewaySource(visible(String(json.version), 40));
  } catch (error) {
    if (!(error instanceof SourceError) || error.status === 0) throw error;
  }
  return new StaticSource();
}
