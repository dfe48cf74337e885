/** Signed notes (c2sp.org/signed-note) with Ed25519 signatures, and cosignatures (c2sp.org/tlog-cosignature). */

import { hashes, Point, verify } from "@noble/ed25519";
import { sha256, sha512 } from "@noble/hashes/sha2.js";
import { concat, equal, toHex, toUtf8 } from "../bytes.ts";
import { InvalidInput, ProofError, shown } from "../errors.ts";
import { fromBase64 } from "../multibase.ts";
import { EMPTY_ROOT } from "./tree.ts";

hashes.sha512 = sha512;

const MAX_NOTE = 262_144; // 16 signatures of 5 kB, as post-quantum ones are, take 110 kB in base64
const MAX_SIGNATURES = 64;
const ED25519 = 1;
const COSIGNATURE = 4;
// biome-ignore lint/suspicious/noControlCharactersInRegex: what a name must not have
const KEY_NAME = /^[^\p{White_Space}\p{Surrogate}+\x00-\x1f]+$/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: what a note must not have
const CONTROL = /[\x00-\x09\x0b-\x1f]/;
const SIGNATURE = /^— ([^ ]+) ([^ ]+)$/u;
/** Times of cosignatures are below. */
const TIME_LIMIT = 2n ** 63n;

function bytesOf(text: string): Uint8Array {
  return toUtf8(text) ?? refuse("not UTF-8");
}

function refuse(message: string): never {
  throw new ProofError(`signed note: ${message}`);
}

/** A signature line. Nothing in it is verified. */
export interface Signature {
  /** The name of the key. */
  readonly name: string;
  readonly keyId: Uint8Array;
  readonly data: Uint8Array;
}

/** A text that ends in a newline, and its signatures, which are not verified. */
export interface Note {
  readonly text: string;
  readonly signatures: readonly Signature[];
}

/** @throws ProofError if it is malformed, longer than 256 KiB, or has more than 64 signatures. */
export function parseNote(whole: string): Note {
  if (bytesOf(whole).length > MAX_NOTE) refuse(`longer than ${MAX_NOTE} bytes`);
  if (CONTROL.test(whole)) refuse("a control character");
  const blank = whole.lastIndexOf("\n\n");
  if (blank <= 0 || !whole.endsWith("\n")) refuse("expected a text, an empty line and lines of signatures");
  const lines = whole.slice(blank + 2).split("\n");
  lines.pop();
  if (lines.length < 1 || lines.length > MAX_SIGNATURES) refuse(`expected 1 to ${MAX_SIGNATURES} signatures`);
  return { text: whole.slice(0, blank + 1), signatures: lines.map(parseSignature) };
}

function parseSignature(line: string): Signature {
  const [, name = "", encoded = ""] = SIGNATURE.exec(line) ?? [];
  const data = fromBase64(encoded);
  if (!KEY_NAME.test(name) || data === null || data.length <= 4) refuse(`a signature is malformed: ${shown(line)}`);
  return { name, keyId: data.slice(0, 4), data: data.slice(4) };
}

function isSmallOrder(publicKey: Uint8Array): boolean {
  try {
    return Point.fromBytes(publicKey, true).isSmallOrder();
  } catch {
    return false; // no point at all: nothing verifies by it
  }
}

/** The public key of a log or a witness. */
export class VerifierKey {
  /** Its name, which for a log is its origin. */
  readonly name: string;
  readonly isWitness: boolean;
  readonly publicKey: Uint8Array;
  readonly keyId: Uint8Array;

  /**
   * @param text A vkey: name+id+base64.
   * @throws InvalidInput `invalid_request` if it is malformed, or of another kind than Ed25519.
   */
  constructor(text: string) {
    const [name = "", id = "", ...rest] = text.split("+");
    const data = fromBase64(rest.join("+"));
    const kind = data?.[0];
    if (!KEY_NAME.test(name) || data?.length !== 33 || (kind !== ED25519 && kind !== COSIGNATURE))
      throw new InvalidInput("invalid_request", `${shown(text)}: expected name+id+base64 of an Ed25519 key`);
    if (isSmallOrder(data.slice(1)))
      throw new InvalidInput(
        "invalid_request",
        `${shown(text)}: a public key of small order: anybody can sign with it`,
      );
    this.name = name;
    this.isWitness = kind === COSIGNATURE;
    this.publicKey = data.slice(1);
    this.keyId = sha256(concat(bytesOf(`${name}\n`), data)).slice(0, 4);
    if (toHex(this.keyId) !== id)
      throw new InvalidInput("invalid_request", `${shown(text)}: its id is ${toHex(this.keyId)}`);
  }

  /**
   * Verify every signature of a note by this key.
   * @returns null if the note has none; for a cosignature its time in seconds since 1970, of several ones the newest;
   * otherwise 0.
   * @throws ProofError if it has one that is wrong: then the whole note is to be refused.
   */
  verify(note: Note): bigint | null {
    const found = note.signatures.filter((each) => each.name === this.name && equal(each.keyId, this.keyId));
    const times = found.map(({ data }) => this.#verify(note.text, data));
    return times.reduce<bigint | null>((newest, time) => (newest === null || time > newest ? time : newest), null);
  }

  #verify(text: string, data: Uint8Array): bigint {
    const timeBytes = this.isWitness ? 8 : 0;
    const seconds = data.slice(0, timeBytes).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
    const message = this.isWitness ? `cosignature/v1\ntime ${seconds}\n${text}` : text;
    const isRight =
      data.length === timeBytes + 64 &&
      seconds < TIME_LIMIT &&
      verify(data.slice(timeBytes), bytesOf(message), this.publicKey, { zip215: false });
    if (!isRight) throw new ProofError(`the signature by ${this.name} is wrong`);
    return seconds;
  }
}

/** The head of a log (c2sp.org/tlog-checkpoint). */
export interface Checkpoint {
  /** The name of the log. */
  readonly origin: string;
  /** The number of leaves. */
  readonly size: number;
  readonly root: Uint8Array;
}

/** The checkpoint that a note's text is. Nobody's signature is verified: `Policy.verify` does that. */
export function readCheckpoint(note: Note): Checkpoint {
  const lines = note.text.split("\n");
  const [origin = "", size = "", hash = ""] = lines;
  const root = parseHash(hash);
  if (lines.slice(0, -1).includes("") || !/^(0|[1-9][0-9]{0,15})$/.test(size) || !Number.isSafeInteger(Number(size)))
    refuse("the text is not a checkpoint");
  if (size === "0" && !equal(root, EMPTY_ROOT)) refuse("the root hash is not that of an empty tree");
  return { origin, size: Number(size), root };
}

/** @throws ProofError unless it is the base64 of 32 bytes. */
export function parseHash(text: unknown): Uint8Array {
  const hash = typeof text === "string" ? fromBase64(text) : null;
  return hash?.length === 32 ? hash : refuse("a hash is not the base64 of 32 bytes");
}
