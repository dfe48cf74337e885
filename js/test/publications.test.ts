/** Section 9: entries, proofs and signed checkpoints of the vectors, and histories. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { toHex } from "../src/bytes.ts";
import { InvalidInput, ProofError } from "../src/index.ts";
import { leafHash, rootOf } from "../src/log/tree.ts";
import {
  Policy,
  parseNote,
  publicationEntry,
  readCheckpoint,
  VerifierKey,
  verifyHistory,
  verifyPublication,
} from "../src/publications.ts";
import { type Case, load } from "./support.ts";

const CASES = load("publications");

function of(kind: string): Case[] {
  return CASES.filter((each) => each.kind === kind);
}

function verified({ policy, before, answer }: Case) {
  const checkpoint = new Policy(policy).verify(parseNote(answer.checkpoint));
  const options = before === null ? {} : { before: readCheckpoint(parseNote(before)) };
  return verifyPublication("docs", "main", answer, checkpoint, options);
}

test("entries and leaves", () => {
  for (const { record, entry, leaf } of of("entry")) {
    assert.equal(toHex(publicationEntry(record)), entry);
    assert.equal(Buffer.from(leafHash(publicationEntry(record))).toString("base64"), leaf);
  }
});

test("proofs are accepted", () => {
  assert(of("proof").length > 20);
  for (const each of of("proof")) assert.equal(verified(each), each.answer.record);
});

test("what is wrong is refused", () => {
  assert(of("refused").length > 10);
  for (const each of of("refused")) assert.throws(() => verified(each), ProofError, each.why);
  const { answer } = of("proof")[0];
  for (const each of [{ ...answer.record, revision: 0 }, { ...answer.record, root: "?" }, null])
    assert.throws(() => verified({ ...of("proof")[0], answer: { ...answer, record: each } }), ProofError);
});

test("only a revision that was asked for may be older than the newest", () => {
  const old = of("refused").find(({ why }) => why === "an older revision as the newest one");
  const checkpoint = new Policy(old.policy).verify(parseNote(old.answer.checkpoint));
  const ask = (revision: unknown) =>
    verifyPublication("docs", "main", old.answer, checkpoint, { revision } as { revision?: number });
  assert.equal(ask(old.answer.record.revision), old.answer.record);
  for (const revision of [undefined, null, 0]) assert.throws(() => ask(revision), ProofError, String(revision));
});

/** The newest proof without a freeze, and the records of its tree. */
function wholeHistory() {
  const records = of("entry").map(({ record }) => record);
  const isWhole = ({ answer }: Case) => answer.size === records.length && answer.freeze === undefined;
  const found = of("proof").find(isWhole);
  return { records, checkpoint: new Policy(found.policy).verify(parseNote(found.answer.checkpoint)) };
}

test("a history is the tree of its checkpoint, and continues an earlier one", () => {
  const { records, checkpoint } = wholeHistory();
  verifyHistory("docs", "main", records, checkpoint);
  const leaves = records.map((record) => leafHash(publicationEntry(record)));
  const before = { ...checkpoint, size: 3, root: rootOf(leaves.slice(0, 3)) };
  verifyHistory("docs", "main", records, checkpoint, before);
  const wrong: [string, () => void][] = [
    ["shorter", () => verifyHistory("docs", "main", records.slice(0, -1), checkpoint)],
    [
      "changed",
      () => verifyHistory("docs", "main", records.with(0, { ...records[0], root: records[1].root }), checkpoint),
    ],
    ["another name", () => verifyHistory("docs", "other", records, checkpoint)],
    ["a fork", () => verifyHistory("docs", "main", records, checkpoint, { ...before, root: rootOf(leaves) })],
    ["a rollback", () => verifyHistory("docs", "main", records, checkpoint, { ...before, size: records.length + 1 })],
    ["another log", () => verifyHistory("docs", "main", records, checkpoint, { ...before, origin: "other" })],
  ];
  for (const [why, call] of wrong) assert.throws(call, ProofError, why);
});

test("the freeze is the last leaf of a frozen history", () => {
  const { records } = wholeHistory();
  const [freeze] = of("freeze");
  const frozen = records.with(-1, { ...records.at(-1), frozen: true, frozen_at: freeze.frozen_at });
  const found = of("proof").find(({ answer }) => answer.freeze !== undefined);
  const checkpoint = new Policy(found.policy).verify(parseNote(found.answer.checkpoint));
  verifyHistory("docs", "main", frozen, checkpoint);
  assert.throws(() => verifyHistory("docs", "main", records, checkpoint), ProofError);
});

test("policies and keys name what is wrong with them", () => {
  const [log, witness] = of("proof")[0].policy.split("\n");
  assert(!new VerifierKey(log.split(" ")[1]).isWitness);
  const wrong = [
    "",
    log,
    `${log}\nquorum other`,
    `${log}\nquorum none\nquorum none`,
    `${log}\n${log}\nquorum none`,
    `${witness.replace("witness w", "log")}\nquorum none`,
    `${witness}\ngroup g 2 w\nquorum g`,
    `${witness}\n${witness}`,
    `${log.replace("+b", "+c")}\nquorum none`,
    "other words",
  ];
  for (const text of wrong) assert.throws(() => new Policy(text), InvalidInput, text);
  assert.throws(() => new Policy(`${log}\nother`), /line 2/);
});

test("notes are read strictly", () => {
  const note = of("proof")[0].answer.checkpoint as string;
  const wrong = [
    "",
    "text\n",
    note.slice(0, -1),
    `${note}\r`,
    note.replace("— ", "- "),
    `${note}${"—".repeat(40_000)}`,
  ];
  for (const text of wrong) assert.throws(() => parseNote(text), ProofError, text.slice(0, 80));
});
