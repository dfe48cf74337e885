/** Signed publications (section 9): the history of a published name, and its newest revision, against a checkpoint. */

import { concat, equal, toUtf8, varint } from "./bytes.ts";
import { Cid } from "./cid.ts";
import { InvalidInput, ProofError } from "./errors.ts";
import { type Checkpoint, parseHash } from "./log/note.ts";
import { leafHash, rootOf, verifyConsistency, verifyInclusion } from "./log/tree.ts";

export { type Checkpoint, type Note, parseNote, readCheckpoint, type Signature, VerifierKey } from "./log/note.ts";
export { Policy } from "./log/policy.ts";

/** A record of a published name, as a gateway writes it. */
export interface PublishedRecord {
  readonly scope: string;
  readonly name: string;
  readonly root: string;
  /** Counts from 1. */
  readonly revision: number;
  readonly previous_root: string | null;
  readonly published_at: string;
  readonly frozen: boolean;
  readonly frozen_at?: string;
}

/** The answer of `GET /v1/publications/{scope}/{name}` for a name that is signed; else `UnsignedPublication`. */
export interface PublicationProof {
  readonly record: PublishedRecord;
  readonly inclusion: readonly string[];
  readonly consistency: readonly string[];
  readonly freeze?: readonly string[];
  /** A signed note. */
  readonly checkpoint?: string;
}

/** The answer for a name that is not signed: what the gateway says, which nothing proves. */
export interface UnsignedPublication {
  readonly record: PublishedRecord;
  readonly status: "unsigned";
}

/** Whether an answer is for a name that is not signed. Where a signature is expected, that is a failure. */
export function isUnsigned(answer: PublicationProof | UnsignedPublication): answer is UnsignedPublication {
  return (answer as { status?: unknown } | null)?.status === "unsigned";
}

const MAX_PROOF = 63;
const PUBLICATION = 1;
const FREEZE = 2;
const TIME = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):?(\d\d))$/;
/** In microseconds since 1970: no time is given with a year of five digits. */
const YEAR_10000 = 253_402_300_800_000_000n;

function refuse(message: string): never {
  throw new ProofError(message);
}

/**
 * The entry of a record: the bytes of leaf `revision - 1` of its log.
 * @throws ProofError if the record is malformed.
 */
export function publicationEntry(record: PublishedRecord): Uint8Array {
  const { root, previous_root: previous, published_at: published } = record;
  const before = previous === null ? counted(new Uint8Array(0)) : cidBytes(previous);
  return concat(head(PUBLICATION, record), cidBytes(root), before, time(published));
}

function freezeEntry(record: PublishedRecord): Uint8Array {
  return concat(head(FREEZE, record), time(record.frozen_at));
}

function head(kind: number, { scope, name, revision }: PublishedRecord): Uint8Array {
  if (!Number.isSafeInteger(revision) || revision < 1) refuse("a revision is not a number from 1");
  return concat(Uint8Array.of(kind), text(scope), text(name), varint(revision));
}

function counted(bytes: Uint8Array): Uint8Array {
  return concat(varint(bytes.length), bytes);
}

function text(value: unknown): Uint8Array {
  return counted((typeof value === "string" ? toUtf8(value) : null) ?? refuse("a name is not text"));
}

function cidBytes(cid: unknown): Uint8Array {
  try {
    const { bytes, text: canonical } = new Cid(String(cid));
    if (canonical === cid) return counted(bytes);
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
  }
  return refuse("a root is not a CID in lower-case base32");
}

/**
 * A time of RFC 3339 in microseconds since 1970, to which it is rounded.
 * @returns null if it is malformed, has no offset from UTC, or does not exist, as February 30.
 */
export function microseconds(value: unknown): bigint | null {
  const [, date = "", clock = "", fraction = "", sign, hours = "0", minutes = "0"] =
    (typeof value === "string" && TIME.exec(value)) || [];
  const local = Date.parse(`${date}T${clock}Z`);
  // Engines take February 30 for March 2, and 24:00 for midnight.
  if (Number.isNaN(local) || new Date(local).toISOString() !== `${date}T${clock}.000Z`) return null;
  if (Number(hours) > 23 || Number(minutes) > 59) return null;
  const rounded = BigInt(fraction.slice(0, 6).padEnd(6, "0")) + ((fraction[6] ?? "0") >= "5" ? 1n : 0n);
  const found = BigInt(local) * 1000n + rounded;
  if (found >= YEAR_10000) return null;
  const offset = BigInt(60 * Number(hours) + Number(minutes)) * 60_000_000n;
  return sign === "-" ? found + offset : found - offset;
}

/** Microseconds since 1970, in 8 bytes. */
function time(value: unknown): Uint8Array {
  const since = microseconds(value);
  if (since === null || since < 0n) refuse("a time is malformed, or before 1970");
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, since);
  return bytes;
}

function hashesOf(texts: unknown): Uint8Array[] {
  if (!Array.isArray(texts) || texts.length > MAX_PROOF) refuse(`a proof is not a list of up to ${MAX_PROOF} hashes`);
  return texts.map(parseHash);
}

function checkName(record: PublishedRecord, scope: string, name: string): void {
  if (record?.scope !== scope || record.name !== name) refuse(`the answer is not of ${scope}/${name}`);
}

/**
 * Verify a gateway's answer for the newest revision of a name, or for a given one.
 * @param checkpoint The checkpoint of the answer, from `Policy.verify`.
 * @param options.before The checkpoint that was verified last; without it, nothing is known of the past.
 * @param options.revision The revision that was asked for; without it, the newest one of the tree.
 * @returns The record, which is proven.
 * @throws ProofError if the answer is unsigned, or the tree of the checkpoint does not have the record, or does not
 *   continue the one before.
 */
export function verifyPublication(
  scope: string,
  name: string,
  answer: PublicationProof | UnsignedPublication,
  checkpoint: Checkpoint,
  options: { readonly before?: Checkpoint; readonly revision?: number } = {},
): PublishedRecord {
  if (isUnsigned(answer)) refuse(`${scope}/${name} is not signed`);
  const { record, freeze } = answer;
  const { before } = options;
  const revision = options.revision ?? null;
  if (before !== undefined) {
    checkOrigin(checkpoint, before);
    verifyConsistency(before.size, before.root, checkpoint.size, checkpoint.root, hashesOf(answer.consistency));
  }
  checkName(record, scope, name);
  if (revision !== null && record.revision !== revision) refuse(`the answer is revision ${record.revision}`);
  if (revision === null && record.revision + (freeze === undefined ? 0 : 1) !== checkpoint.size)
    refuse(`revision ${record.revision} is not the newest one of ${checkpoint.size} leaves`);
  const { size, root } = checkpoint;
  verifyInclusion(publicationEntry(record), record.revision - 1, size, root, hashesOf(answer.inclusion));
  if (record.frozen !== (freeze !== undefined) || record.frozen !== (record.frozen_at !== undefined))
    refuse("whether it is frozen is not proven");
  if (freeze !== undefined) {
    if (size !== record.revision + 1) refuse("a freeze that is not the last leaf");
    verifyInclusion(freezeEntry(record), record.revision, size, root, hashesOf(freeze));
  }
  return record;
}

/**
 * Verify the whole history of a name: all records, oldest first, are the tree of a checkpoint. O(n) hashes.
 * @param checkpoint From `Policy.verify`.
 * @param before The checkpoint that was verified last, if any: the history must continue it.
 * @throws ProofError if a record is missing, added or changed, or the history is not a continuation.
 */
export function verifyHistory(
  scope: string,
  name: string,
  records: readonly PublishedRecord[],
  checkpoint: Checkpoint,
  before?: Checkpoint,
): void {
  const leaves = records.map((record, i) => {
    checkName(record, scope, name);
    if (record.revision !== i + 1) refuse(`revision ${record.revision} where ${i + 1} is expected`);
    if (record.frozen && i + 1 < records.length) refuse(`revision ${i + 1} is frozen, but another one follows`);
    return leafHash(publicationEntry(record));
  });
  const last = records.at(-1);
  if (last?.frozen) leaves.push(leafHash(freezeEntry(last)));
  if (leaves.length !== checkpoint.size || !equal(rootOf(leaves), checkpoint.root))
    refuse(`the history is not the tree of ${checkpoint.size} leaves that the checkpoint names`);
  if (before === undefined) return;
  checkOrigin(checkpoint, before);
  if (before.size > leaves.length) refuse(`a tree of ${leaves.length} leaves, after one of ${before.size}: a rollback`);
  if (!equal(rootOf(leaves.slice(0, before.size)), before.root))
    refuse(`the history does not continue the tree of ${before.size} leaves that was verified before: a fork`);
}

function checkOrigin(checkpoint: Checkpoint, before: Checkpoint): void {
  if (checkpoint.origin !== before.origin) refuse(`the checkpoint is of ${checkpoint.origin}, not of ${before.origin}`);
}
