/** Answers of the verifier over standard input and output, a line of JSON each, for differential fuzzing. */

import { createInterface } from "node:readline";
import "../src/all-hashes.ts";
import {
  Cid,
  CoregwError,
  verifyChanges,
  verifyDiff,
  verifyIndex,
  verifyKey,
  verifyKeys,
  verifyMapProof,
  verifyRange,
  verifyScan,
} from "../src/index.ts";
import { type Case, changesOf, windowOptions } from "./support.ts";

function unbase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "base64"));
}

function answer(asked: Case): unknown {
  const proof = unbase64(asked.proof ?? "");
  switch (asked.kind) {
    case "key":
      return verifyKey(asked.root, asked.path, proof);
    case "keys":
      return verifyKeys(asked.root, asked.paths, proof);
    case "index": {
      const { target, size, length } = verifyIndex(asked.root, asked.index, proof);
      return [target, size, length];
    }
    case "range": {
      const { totalSize, ...range } = verifyRange(asked.root, asked.start, asked.end ?? undefined, proof);
      return { ...range, total_size: totalSize };
    }
    case "scan": {
      const { entries, more } = verifyScan(asked.root, windowOptions(asked), proof);
      return { entries: entries.map(({ segments, target }) => [segments, target]), more };
    }
    case "changes":
      return verifyChanges(asked.root, changesOf(asked.changes), proof);
    case "diff": {
      const [a, b] = asked.proofs.map(unbase64);
      const { entries, more } = verifyDiff(asked, windowOptions(asked), { a, b });
      const shown = entries.map(({ segments, before, after }) => ({
        segments,
        before: before ?? undefined,
        after: after ?? undefined,
      }));
      return { entries: shown, more };
    }
    case "cid":
      return new Cid(asked.cid).text;
    case "map_proof":
      return verifyMapProof(asked.request, asked.result);
    default:
      throw new TypeError(`unknown kind ${asked.kind}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let outcome: unknown;
  try {
    outcome = { answer: answer(JSON.parse(line)) };
  } catch (error) {
    if (!(error instanceof CoregwError)) throw error;
    outcome = { refused: true, error: error.message };
  }
  process.stdout.write(`${JSON.stringify(outcome)}\n`);
}
