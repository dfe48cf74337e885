/** Attributes of a folder's files (section 7): strict reading of their records. */

import { fromUtf8, Reader } from "./bytes.ts";
import { Cid, type CidLike, payloadCid, verifyPayload } from "./cid.ts";
import { ProofError } from "./errors.ts";

/** Where a folder's map binds the root of its map of attributes. */
export const ATTRIBUTES_PATH = [".coregw", "attributes"];

/** What a record says: what its writer wrote, not what the bytes of a file are. */
export interface Attributes {
  readonly kind: "file" | "folder" | "link";
  readonly size?: number;
  /** Permission bits. */
  readonly mode?: number;
  /** Nanoseconds since 1970-01-01T00:00Z. */
  readonly mtime?: bigint;
  /** The target of a symbolic link. */
  readonly link?: Uint8Array;
  readonly uid?: number;
  readonly gid?: number;
  readonly xattrs?: ReadonlyMap<string, Uint8Array>;
}

const MAX_RECORD = 1_048_576;
const MAX_IDENTITY = 128;
const DAG_CBOR = 0x71;
const ORDER = ["gid", "uid", "link", "mode", "size", "mtime", "folder", "xattrs"];

type Value = bigint | Uint8Array | true | Map<string, Uint8Array>;

function refuse(message: string): never {
  throw new ProofError(`a record: ${message}`);
}

/**
 * Read the record of a target in the map of attributes.
 * @param payload The payload that the target names; absent for an identity CID, which holds the record.
 * @throws ProofError if it is not a record in its one encoding, or the target is not its one CID.
 */
export function decodeAttributes(target: CidLike, payload?: Uint8Array): Attributes {
  const cid = new Cid(target);
  const record = cid.hashCode === 0 ? cid.digest : (payload ?? refuse("its payload is missing"));
  if (record.length > MAX_RECORD) refuse("longer than 1 MiB");
  const expected = payloadCid(record, DAG_CBOR, record.length <= MAX_IDENTITY ? "identity" : "sha2-256");
  if (expected.text !== cid.text) {
    verifyPayload(cid, record);
    refuse("its target is not the one CID of the record");
  }
  const reader = new Reader(record, (message) => refuse(message));
  const members = readMembers(reader);
  if (!reader.isAtEnd) reader.refuse("bytes follow");
  return attributesOf(members);
}

/** The head of a CBOR item in its shortest form. */
function readHead(reader: Reader): { major: number; value: bigint } {
  const first = reader.byte();
  const [major, short] = [first >> 5, first & 31];
  if (short < 24) return { major, value: BigInt(short) };
  if (short > 27) reader.refuse("an indefinite or reserved length");
  const length = 1 << (short - 24);
  let value = 0n;
  for (const byte of reader.take(length)) value = (value << 8n) | BigInt(byte);
  const least = length === 1 ? 24n : 1n << BigInt(4 * length);
  return value < least ? reader.refuse("a number is not in its shortest form") : { major, value };
}

function readString(reader: Reader, major: 2 | 3): Uint8Array {
  const head = readHead(reader);
  if (head.major !== major) reader.refuse("a value of another type");
  if (head.value > BigInt(MAX_RECORD)) reader.refuse("truncated");
  return reader.take(Number(head.value));
}

/** A member's name, which comes after the last one: shorter first, then by bytes. */
function readName(reader: Reader, last: string | undefined): string {
  const name = fromUtf8(readString(reader, 3)) ?? reader.refuse("a name is not UTF-8");
  return last !== undefined && !comesAfter(name, last) ? reader.refuse("members are not in order") : name;
}

const utf8 = new TextEncoder();

function comesAfter(name: string, last: string): boolean {
  const [a, b] = [utf8.encode(name), utf8.encode(last)];
  if (a.length !== b.length) return a.length > b.length;
  const i = a.findIndex((byte, at) => byte !== b[at]);
  return i >= 0 && (a[i] as number) > (b[i] as number);
}

function readMembers(reader: Reader): Map<string, Value> {
  const { major, value } = readHead(reader);
  if (major !== 5 || value === 0n || value > BigInt(ORDER.length)) reader.refuse("not a map with members of a record");
  const members = new Map<string, Value>();
  let last: string | undefined;
  for (let i = 0n; i < value; i++) {
    last = readName(reader, last);
    members.set(last, readValue(reader, last));
  }
  return members;
}

function readValue(reader: Reader, name: string): Value {
  switch (name) {
    case "link":
      return readString(reader, 2);
    case "folder":
      return reader.byte() === 0xf5 ? true : reader.refuse("folder is not true");
    case "xattrs":
      return readXattrs(reader);
    case "gid":
    case "uid":
    case "mode":
    case "size":
    case "mtime":
      return readNumber(reader, name);
    default:
      return reader.refuse("an unknown member");
  }
}

const LIMITS: Record<string, bigint> = {
  gid: 1n << 32n,
  uid: 1n << 32n,
  mode: 0o10000n,
  size: 1n << 53n,
  mtime: 1n << 63n,
};

function readNumber(reader: Reader, name: string): bigint {
  const { major, value } = readHead(reader);
  if (major !== 0 && !(major === 1 && name === "mtime")) reader.refuse(`${name} is not a number`);
  if (value >= (LIMITS[name] as bigint)) reader.refuse(`${name} is too large`);
  return major === 1 ? -1n - value : value;
}

function readXattrs(reader: Reader): Map<string, Uint8Array> {
  const { major, value } = readHead(reader);
  if (major !== 5 || value === 0n) reader.refuse("xattrs is not a map with members");
  const found = new Map<string, Uint8Array>();
  let last: string | undefined;
  for (let i = 0n; i < value; i++) {
    last = readName(reader, last);
    const length = utf8.encode(last).length;
    if (length < 1 || length > 255 || last.includes("\0")) reader.refuse("a name of an extended attribute");
    const bytes = readString(reader, 2);
    if (bytes.length > 65_536) reader.refuse("a value of an extended attribute is too long");
    found.set(last, bytes);
  }
  return found;
}

function attributesOf(members: Map<string, Value>): Attributes {
  const [link, isFolder] = [members.get("link") as Uint8Array | undefined, members.has("folder")];
  const kind = link !== undefined ? "link" : isFolder ? "folder" : "file";
  if (link !== undefined && (isFolder || link.length < 1 || link.length > 4095 || link.includes(0)))
    refuse("not the record of a symbolic link");
  if (members.has("uid") !== members.has("gid")) refuse("uid without gid, or gid without uid");
  if (kind !== "file" && members.has("size")) refuse("only files have a size");
  if (kind === "link" && members.has("mode")) refuse("symbolic links have no mode");
  const number = (name: string) => (members.has(name) ? { [name]: Number(members.get(name)) } : {});
  return {
    kind,
    ...number("size"),
    ...number("mode"),
    ...number("uid"),
    ...number("gid"),
    ...(members.has("mtime") ? { mtime: members.get("mtime") as bigint } : {}),
    ...(link === undefined ? {} : { link }),
    ...(members.has("xattrs") ? { xattrs: members.get("xattrs") as Map<string, Uint8Array> } : {}),
  };
}
