/** Readers of the vector files, and arguments of the verifier that a case describes. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Change, verifyIndex, verifyKey, verifyRange, verifyScan } from "../src/index.ts";

/** A case of a vector file. */
// biome-ignore lint/suspicious/noExplicitAny: the files have cases of many shapes
export type Case = any;

const FOLDER = process.env["COREGW_VECTORS"] ?? join(import.meta.dirname, "../../rust/core/tests/vectors");

/** The cases of a vector file, with the text of each as `source`: the files have one case a line. */
export function load(name: string): Case[] {
  const text = readFileSync(join(FOLDER, `${name}.json`), "utf8");
  const sources = text.split("\n").map((line) => line.trim().replace(/,$/, ""));
  const cases = JSON.parse(text).cases as Case[];
  const lines = sources.filter((line) => line.startsWith("{") && line.endsWith("}"));
  assert.equal(lines.length, cases.length);
  return cases.map((each, i) => ({ ...each, source: lines[i] }));
}

export function unhex(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text, "hex"));
}

/** Verify a case's proof by its query. Returns what is proven, in the vector file's words. */
export function checkProof({ root, query, proof: hex }: Case): Record<string, unknown> {
  const proof = unhex(hex);
  if (query.kind === "map_key") {
    const target = verifyKey(root, query.segments, proof);
    return { present: target !== null, target };
  }
  if (query.kind === "list_index") {
    const { target, length } = verifyIndex(root, query.index, proof);
    return { present: target !== null, target, length };
  }
  if (query.kind === "list_range") {
    const { totalSize, ...range } = verifyRange(root, query.start, query.end, proof);
    return { ...range, total_size: totalSize };
  }
  return { ...verifyScan(root, windowOptions(query), proof) };
}

export function windowOptions({ prefix, after, limit }: Case) {
  return { prefix, limit, ...(after == null ? {} : { after }) };
}

export function changesOf(changes: Case[]): Change[] {
  return changes.map(({ path, index, before, after, size }) => ({
    ...(path === undefined ? { index } : { path }),
    before,
    after,
    size: size ?? null,
  }));
}
