/** CIDs, roots and payloads (section 1). */

import { concat, equal, Reader, varint } from "./bytes.ts";
import { InvalidInput, ProofError, shown } from "./errors.ts";
import { DIGEST_BYTES, hashOf, IDENTITY, SUITES, type Suite, type SuiteName } from "./hashes.ts";
import { fromBase58, fromMultibase, toBase32 } from "./multibase.ts";

const MAX_IDENTITY_BYTES = 128;
const MAX_TEXT = 512;
const FIRST_ROOT_CODEC = 0x300000;
const LAST_ROOT_CODEC = 0x30ffff;
const KINDS = { map: 1, list: 2 } as const;

/** What a CID names: the top node of a map or list, or a payload. */
export type TargetKind = "map" | "list" | "cas";

/** A CID in any accepted text form, in binary, or parsed. */
export type CidLike = string | Uint8Array | Cid;

/** A CIDv1. Two CIDs are equal if their texts are. */
export class Cid {
  /** The binary form. */
  readonly bytes: Uint8Array;
  readonly codec: number;
  readonly hashCode: number;
  readonly digest: Uint8Array;
  readonly kind: TargetKind;
  /** The hash function of the tree; null for a payload. */
  readonly suite: SuiteName | null;
  /** Lower-case base32, as a gateway writes it. */
  readonly text: string;

  /** @throws InvalidInput `invalid_cid` if it is not a CID of section 1. */
  constructor(cid: CidLike) {
    this.bytes = cid instanceof Cid ? cid.bytes : typeof cid === "string" ? bytesOf(cid) : cid.slice();
    const refuse = (why: string): never => {
      throw new InvalidInput("invalid_cid", `${typeof cid === "string" ? shown(cid) : "bytes"}: not a CID (${why})`);
    };
    const parsed = parse(new Reader(this.bytes, refuse));
    this.codec = parsed.codec;
    this.hashCode = parsed.hashCode;
    this.digest = parsed.digest;
    this.text = `b${toBase32(this.bytes)}`;
    const root = rootOf(parsed);
    if (root === null && isRootCodec(parsed.codec)) refuse("a codec of roots, but no root that is known");
    this.kind = root?.kind ?? "cas";
    this.suite = root?.suite.name ?? null;
  }

  toString(): string {
    return this.text;
  }

  toJSON(): string {
    return this.text;
  }
}

interface Parts {
  codec: number;
  hashCode: number;
  digest: Uint8Array;
}

/** Read the binary form. The codec and the hash code may be rounded above 2^53, where none is known. */
function parse(reader: Reader): Parts {
  if (reader.byte() !== 1) reader.refuse("not version 1");
  const codec = reader.varint();
  const hashCode = reader.varint();
  const length = reader.varint();
  const expected = DIGEST_BYTES.get(hashCode);
  if (hashCode === IDENTITY ? length > MAX_IDENTITY_BYTES : expected === undefined)
    reader.refuse("unknown hash function, or too long an identity");
  if (expected !== undefined && length !== expected) reader.refuse("a digest of another length");
  const digest = reader.take(length);
  if (!reader.isAtEnd) reader.refuse("bytes follow");
  return { codec, hashCode, digest };
}

function bytesOf(text: string): Uint8Array {
  let bytes: Uint8Array | null = null;
  if (text.length <= MAX_TEXT) {
    if (/^Qm.{44}$/.test(text)) {
      const multihash = fromBase58(text);
      if (multihash?.length === 34) bytes = concat(Uint8Array.of(1, 0x70), multihash);
    } else {
      bytes = fromMultibase(text);
    }
  }
  if (bytes === null) throw new InvalidInput("invalid_cid", `${shown(text)} is not a CID`);
  return bytes;
}

function isRootCodec(codec: number): boolean {
  return codec >= FIRST_ROOT_CODEC && codec <= LAST_ROOT_CODEC;
}

function rootOf({ codec, hashCode, digest }: Parts): { kind: "map" | "list"; suite: Suite } | null {
  for (const kind of ["map", "list"] as const)
    for (const suite of SUITES)
      if (codec === rootCodec(kind, suite) && hashCode === suite.code && digest.length === 32) return { kind, suite };
  return null;
}

function rootCodec(kind: "map" | "list", suite: Suite): number {
  return FIRST_ROOT_CODEC | (3 << 12) | (KINDS[kind] << 8) | suite.id;
}

/** The root CID of a tree with this digest at its top. */
export function rootCid(kind: "map" | "list", suite: Suite, digest: Uint8Array): Cid {
  return new Cid(concat(Uint8Array.of(1), varint(rootCodec(kind, suite)), Uint8Array.of(suite.code, 32), digest));
}

/** A root that a verifier trusts: its tree's kind, suite and digest. */
export interface Root {
  readonly cid: Cid;
  readonly kind: "map" | "list";
  readonly suite: Suite;
}

/**
 * Parse a root of the given kind, or of either.
 * @throws InvalidInput `invalid_cid`, or `kind_mismatch` if it is another kind's.
 */
export function parseRoot(root: CidLike, wanted?: "map" | "list"): Root {
  const cid = new Cid(root);
  const suite = SUITES.find(({ name }) => name === cid.suite);
  if (cid.kind === "cas" || suite === undefined || (wanted !== undefined && wanted !== cid.kind))
    throw new InvalidInput("kind_mismatch", `${cid} is not the root of a ${wanted ?? "map or list"}`);
  return { cid, kind: cid.kind, suite };
}

/**
 * Check that bytes are the payload that a CID names, by the CID's own hash function. O(bytes).
 * @throws ProofError if they are not.
 * @throws InvalidInput if the CID is a root's, or if `all-hashes` is needed for it and was not imported.
 */
export function verifyPayload(cid: CidLike, bytes: Uint8Array): void {
  const { kind, hashCode, digest, text } = new Cid(cid);
  if (kind !== "cas") throw new InvalidInput("kind_mismatch", `${text} is a root, not a payload`);
  const hashed = hashCode === IDENTITY ? bytes : hashOf(hashCode)(bytes);
  if (!equal(hashed, digest)) throw new ProofError(`${bytes.length} bytes are not the payload ${text}`);
}

/** The payload that an identity CID contains, or null if the payload is elsewhere. */
export function identityPayload(cid: CidLike): Uint8Array | null {
  const { hashCode, digest } = new Cid(cid);
  return hashCode === IDENTITY ? digest : null;
}

/**
 * The CID of a payload. O(bytes).
 * @param codec A multicodec's number; `raw` if absent.
 */
export function payloadCid(bytes: Uint8Array, codec = 0x55, hash: SuiteName | "identity" = "sha2-256"): Cid {
  if (isRootCodec(codec)) throw new InvalidInput("invalid_codec", "a codec of roots is not a payload's");
  if (hash === "identity") {
    if (bytes.length > MAX_IDENTITY_BYTES) throw new InvalidInput("too_large", "an identity CID has at most 128 bytes");
    return new Cid(concat(Uint8Array.of(1), varint(codec), Uint8Array.of(IDENTITY), varint(bytes.length), bytes));
  }
  const suite = SUITES.find(({ name }) => name === hash) as Suite;
  return new Cid(concat(Uint8Array.of(1), varint(codec), Uint8Array.of(suite.code, 32), hashOf(suite.code)(bytes)));
}
