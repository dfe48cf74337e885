/** Results that a hostile gateway may send, beyond the vectors: members with a meaning in JavaScript, and very long ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { join } from "../src/bytes.ts";
import {
  ProofError,
  verifyChanges,
  verifyDiff,
  verifyKey,
  verifyKeys,
  verifyResolve,
  verifyScan,
} from "../src/index.ts";
import { type Case, load } from "./support.ts";

const { request, result }: Case = load("operations").find(
  (each) => each.operation === "resolve" && each.request.segments.length === 2 && accepts(each),
);

function accepts(each: Case): boolean {
  try {
    return verifyResolve(each.request, each.result) !== "";
  } catch {
    return false;
  }
}

test("members that every object inherits are members like others", () => {
  const text = JSON.stringify(result);
  for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"])
    for (const value of ["{}", "[]", "null", "true"]) {
      const extra = `${JSON.stringify(name)}: ${value}`;
      for (const forged of [text.replace(/}$/, `, ${extra}}`), text.replace('"steps":[{', `"steps":[{${extra}, `)]) {
        assert.notEqual(forged, text);
        assert.throws(() => verifyResolve(request, forged), ProofError, forged);
      }
    }
});

test("strings as long as a response may be are read, whatever is in them", () => {
  for (const letter of ["A", "\\", '"']) {
    const forged = JSON.stringify({ ...result, target: letter.repeat(20_000_000) });
    assert.throws(() => verifyResolve(request, forged), ProofError);
  }
  assert.throws(() => verifyResolve(request, '{"profile": "no end'), /does not end/);
  assert.throws(() => verifyResolve(request, '{"profile\\"'), /does not end/);
});

test("any number of parts is joined", () => {
  assert.equal(join(Array.from({ length: 500_000 }, () => Uint8Array.of(1))).length, 500_000);
});

/** A pruned tree of 4,096 leaves, each of nine bytes: their keys are 4,000 letters and two more, which tell them apart. */
function longKeys(): Uint8Array {
  const letter = 0x40; // the first two bits of a letter
  const below = (depth: number): number[] => {
    if (depth === 0) return [1, 2, 0, 0, 4, 1, 0x55, 0, 0];
    const child = below(depth - 1);
    return [2, ...(depth === 6 ? [2, letter] : [0]), ...child, ...child];
  };
  const child = below(11);
  return Uint8Array.from([2, 0x82, 0xfa, 0x01, ...Array<number>(4000).fill(0x61), letter, ...child, ...child]);
}

test("proofs of more long keys than their query visits are refused before they are hashed", () => {
  const proof = longKeys();
  const known = load("proofs").find(({ query }) => query.kind === "map_key").root;
  const change = { path: "a/b", before: null, after: "bafkqaaa" };
  for (const verify of [
    () => verifyScan(known, { limit: 1000 }, proof),
    () => verifyKey(known, "a/b", proof),
    () => verifyKeys(known, ["a/b", "c"], proof),
    () => verifyChanges(known, [change], proof),
    () => verifyDiff({ a: known, b: known }, { limit: 1000 }, { a: proof, b: proof }),
  ])
    assert.throws(verify, /more (leaves|nodes) than the query can visit/);
  assert.throws(() => verifyScan(known, { limit: 4096 }, proof), /does not have the root's digest/);
});
