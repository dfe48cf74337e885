/** Every vector file: valid cases are accepted with the answer they state, and forgeries are refused. */

import assert from "node:assert/strict";
import { test } from "node:test";
import "../src/all-hashes.ts";
import { toHex } from "../src/bytes.ts";
import {
  Cid,
  Conflict,
  type CoregwError,
  encodeKey,
  InvalidInput,
  ProofError,
  payloadCid,
  verifyChanges,
  verifyKeys,
  verifyMapProof,
  verifyPayload,
  verifyRead,
  verifyResolve,
  verifyScan,
  verifyScanResult,
} from "../src/index.ts";
import { type Case, changesOf, checkProof, load, unhex, windowOptions } from "./support.ts";

function refuses(
  call: () => unknown,
  why: string,
  ...kinds: (abstract new (
    ...values: never[]
  ) => CoregwError)[]
): void {
  assert.throws(call, (error) => kinds.some((kind) => error instanceof kind), why);
}

test("keys", () => {
  for (const { segments, key } of load("keys")) {
    assert.equal(toHex(encodeKey(segments)), key);
    assert.equal(toHex(encodeKey(segments.join("/"))), key);
  }
});

test("CIDs in text", () => {
  for (const { text, cid, why } of load("cids")) {
    if (cid === null) {
      refuses(() => new Cid(text), why, InvalidInput);
      continue;
    }
    assert.equal(new Cid(text).text, cid, why);
    assert.equal(new Cid(cid).text, cid, why);
  }
});

const CODECS: Record<string, number> = {
  raw: 0x55,
  "dag-cbor": 0x71,
  "dag-pb": 0x70,
  "dag-json": 0x0129,
  json: 0x0200,
};

test("payloads", () => {
  for (const { bytes, codec, hash, cid } of load("payloads")) {
    verifyPayload(cid, unhex(bytes));
    assert.equal(payloadCid(unhex(bytes), CODECS[codec] ?? Number(codec), hash).text, cid);
    refuses(() => verifyPayload(cid, unhex(`${bytes}00`)), "another payload", ProofError);
  }
});

test("proofs", () => {
  for (const each of load("proofs")) {
    if (!each.valid) {
      refuses(() => checkProof(each), each.why, ProofError);
      continue;
    }
    const proven = checkProof(each);
    for (const [member, value] of Object.entries(proven)) assert.deepEqual(value, each[member], member);
  }
});

test("multiproofs", () => {
  for (const each of load("multiproofs")) {
    const check = () => verifyKeys(each.root, each.keys, unhex(each.proof));
    if (each.valid) assert.deepEqual(check(), each.targets);
    else refuses(check, each.why, ProofError, InvalidInput);
  }
});

test("scans", () => {
  for (const each of load("scans")) {
    const { entries, more } = verifyScan(each.root, windowOptions(each), unhex(each.proof));
    assert.deepEqual(
      entries.map(({ segments, target }) => [segments, target]),
      each.entries,
    );
    assert.equal(more, each.more);
  }
});

test("transitions", () => {
  for (const each of load("transitions"))
    assert.equal(verifyChanges(each.base_root, changesOf(each.changes), unhex(each.proof)), each.new_root, each.change);
});

test("hostile proofs and changes", () => {
  const cases: Case[] = load("hostile").filter(({ operation }) => ["proof", "changes"].includes(operation));
  assert.ok(cases.length > 100);
  for (const each of cases) {
    const check = () =>
      each.operation === "proof"
        ? checkProof(each)
        : verifyChanges(each.root, changesOf(each.changes), unhex(each.proof));
    if (each.valid) check();
    else refuses(check, each.why, ProofError, Conflict, InvalidInput);
  }
});

/** The text of a member that is an object: parsing would lose what is not canonical in it. */
function memberSource(source: string, name: string): string {
  const start = source.indexOf(`"${name}":{`) + name.length + 3;
  let [depth, end, isString] = [0, start, false];
  do {
    const mark = source[end++];
    if (mark === "\\") end++;
    else if (mark === '"') isString = !isString;
    else if (!isString && mark === "{") depth++;
    else if (!isString && mark === "}") depth--;
  } while (depth > 0);
  return source.slice(start, end);
}

function checkOperation({ operation, request, request_text, result, source }: Case): void {
  const [sent, received] = [request_text ?? request, memberSource(source, "result")];
  if (operation === "resolve") {
    assert.equal(verifyResolve(sent, received), result.target);
  } else if (operation === "read") {
    const { target, segments } = verifyRead(sent, received);
    assert.deepEqual([target, segments], [result.target, result.range_segments]);
  } else if (operation === "map_proof") {
    assert.equal(verifyMapProof(sent, received), result.target ?? null);
  } else {
    assert.equal(operation, "scan");
    assert.deepEqual(verifyScanResult(sent, received), { entries: result.entries, more: result.more });
  }
}

test("operations", () => {
  const cases = [...load("operations"), ...load("hostile")].filter(({ result }) => result !== undefined);
  assert.ok(cases.length > 1300);
  for (const each of cases) {
    if (each.valid) checkOperation(each);
    else refuses(() => checkOperation(each), `${each.operation}: ${each.why}`, ProofError, InvalidInput);
  }
});

test("roots are CIDs of their kind and suite", () => {
  for (const { root, kind, suite } of load("roots")) {
    const cid = new Cid(root);
    assert.deepEqual([cid.text, cid.kind, cid.suite], [root, kind, suite]);
  }
});
