/** Hash functions of CIDs and of trees (section 1). */

import { sha256 } from "@noble/hashes/sha2.js";
import { InvalidInput } from "./errors.ts";

export type Hash = (bytes: Uint8Array) => Uint8Array;

export const IDENTITY = 0x00;

/** The lengths of digests in bytes, by multihash code: sha2-256, sha2-512, sha3-256, blake2b-256, blake3. */
export const DIGEST_BYTES: ReadonlyMap<number, number> = new Map([
  [0x12, 32],
  [0x13, 64],
  [0x16, 32],
  [0xb220, 32],
  [0x1e, 32],
]);

/** The hash functions that are loaded, by multihash code. `all-hashes.ts` adds the others. */
export const HASHES: Map<number, Hash> = new Map([[0x12, (bytes: Uint8Array) => sha256(bytes)]]);

/** @throws InvalidInput `invalid_cid` if the hash function was not loaded. */
export function hashOf(code: number): Hash {
  const hash = HASHES.get(code);
  if (hash !== undefined) return hash;
  throw new InvalidInput(
    "invalid_cid",
    `hash function 0x${code.toString(16)}: import "coregw-verify/all-hashes" first`,
  );
}

export type SuiteName = "sha2-256" | "blake3";

/** The hash function of a tree. */
export interface Suite {
  readonly name: SuiteName;
  /** The last byte of the codec of a root. */
  readonly id: number;
  /** The multihash code. */
  readonly code: number;
}

export const SUITES: readonly Suite[] = [
  { name: "sha2-256", id: 0x10, code: 0x12 },
  { name: "blake3", id: 0x11, code: 0x1e },
];
