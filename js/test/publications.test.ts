/** Section 9: texts, entries, proofs and signed checkpoints of the vectors, and histories. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { toHex } from "../src/bytes.ts";
import { InvalidInput, ProofError } from "../src/index.ts";
import { leafHash, rootOf } from "../src/log/tree.ts";
import {
  isUnsigned,
  Policy,
  parseNote,
  publicationEntry,
  readCheckpoint,
  type UnsignedPublication,
  VerifierKey,
  verifyHistory,
  verifyPublication,
} from "../src/publications.ts";
import { type Case, load, unhex } from "./support.ts";

const CASES = [...load("publications"), ...load("notes")];

function of(kind: string): Case[] {
  return CASES.filter((each) => each.kind === kind);
}

test("keys of notes", () => {
  for (const { vkey, valid, why, name, is_witness } of of("vkey")) {
    if (!valid) assert.throws(() => new VerifierKey(vkey), InvalidInput, why);
    else {
      const key = new VerifierKey(vkey);
      assert.deepEqual([key.name, key.isWitness], [name, is_witness], why);
    }
  }
  assert.throws(() => new VerifierKey(`\ud800${of("vkey")[0].vkey}`), InvalidInput);
});

test("notes", () => {
  for (const { note, valid, why } of of("note")) {
    if (valid) assert.ok(note.startsWith(`${parseNote(note).text}\n—`), why);
    else assert.throws(() => parseNote(note), ProofError, why);
  }
});

test("signatures of known keys", () => {
  for (const { vkeys, note, times, why } of of("signed")) {
    const parsed = parseNote(note);
    const verify = () => vkeys.map((vkey: string) => new VerifierKey(vkey).verify(parsed)?.toString() ?? null);
    if (times === null) assert.throws(verify, ProofError, why);
    else assert.deepEqual(verify(), times, why);
  }
});

test("checkpoints", () => {
  for (const { text, valid, why, origin, size, root } of of("checkpoint")) {
    const read = () => readCheckpoint({ text, signatures: [] });
    if (!valid) assert.throws(read, ProofError, why);
    else assert.deepEqual({ ...read(), root: toHex(read().root) }, { origin, size: Number(size), root }, why);
  }
});

test("policies", () => {
  for (const { octets, policy, valid, why } of of("policy")) {
    const forms = octets === undefined ? [policy, new TextEncoder().encode(policy)] : [unhex(octets)];
    for (const given of forms) {
      if (valid) new Policy(given);
      else assert.throws(() => new Policy(given), InvalidInput, why);
    }
  }
  assert.throws(() => new Policy(`# \ud800\nquorum none`), InvalidInput);
  const room = 65_536 - "\nquorum none".length;
  new Policy(`${"#".repeat(room)}\nquorum none`);
  for (const comment of ["#".repeat(room + 1), `#${"é".repeat(room / 2)}`])
    assert.throws(() => new Policy(`${comment}\nquorum none`), /more than 65536 bytes/);
});

test("notes against policies", () => {
  for (const { policy, note, size, why } of of("verified")) {
    const verify = () => new Policy(policy).verify(parseNote(note)).size;
    if (size === null) assert.throws(verify, ProofError, why);
    else assert.equal(verify(), size, why);
  }
});

test("times of records", () => {
  const [{ record }] = of("entry");
  for (const { time, microseconds, why } of of("time")) {
    const entry = () => toHex(publicationEntry({ ...record, published_at: time })).slice(-16);
    if (microseconds === null) assert.throws(entry, ProofError, why);
    else assert.equal(BigInt(`0x${entry()}`), BigInt(microseconds), why);
  }
  assert.throws(() => publicationEntry({ ...record, published_at: [record.published_at] }), ProofError);
});

test("roots of records are in lower-case base32", () => {
  const [{ record }] = of("entry");
  for (const root of [record.root.toUpperCase(), `B${record.root.slice(1)}`, null, 1])
    assert.throws(() => publicationEntry({ ...record, root }), ProofError);
  assert.throws(() => publicationEntry({ ...record, previous_root: record.root.toUpperCase() }), ProofError);
});

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

test("an answer that is not signed is refused where a signature is expected", () => {
  const { policy, answer } = of("proof")[0];
  const checkpoint = new Policy(policy).verify(parseNote(answer.checkpoint));
  const unsigned: UnsignedPublication = { record: answer.record, status: "unsigned" };
  assert(isUnsigned(unsigned) && !isUnsigned(answer));
  assert.throws(() => verifyPublication("docs", "main", unsigned, checkpoint), /docs\/main is not signed/);
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
    `${"é".repeat(131_000)}${note}`,
  ];
  for (const text of wrong) assert.throws(() => parseNote(text), ProofError, text.slice(0, 80));
});
