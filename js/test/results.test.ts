/** Results that a hostile gateway may send, beyond the vectors: members with a meaning in JavaScript, and very long ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { join } from "../src/bytes.ts";
import { ProofError, verifyResolve } from "../src/index.ts";
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
