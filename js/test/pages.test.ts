/** Static trees and folders: the vectors of sections 7 and 8, and proofs made from pages. */

import assert from "node:assert/strict";
import { test } from "node:test";
import "../src/all-hashes.ts";
import { equal, toHex } from "../src/bytes.ts";
import { decodeAttributes } from "../src/folders.ts";
import { InvalidInput, ProofError, verifyDiff, verifyIndex, verifyKey, verifyRange, verifyScan } from "../src/index.ts";
import { PagedTree, type PageSource } from "../src/pages.ts";
import { type Case, load, unhex } from "./support.ts";

/** The pages of a case, and how many were read. */
function sourceOf({ root, pages }: Case, spoil?: (digest: string, page: Uint8Array) => Uint8Array) {
  const read: string[] = [];
  const page = async (digest: Uint8Array) => {
    const name = toHex(digest);
    read.push(name);
    const bytes = unhex(pages[name]);
    return spoil === undefined ? bytes : spoil(name, bytes);
  };
  const first = Object.keys(pages)[0] as string;
  const source: PageSource = { page, root: async (asked) => (asked === root ? page(unhex(first)) : null) };
  return { source, read };
}

async function opened(each: Case): Promise<PagedTree> {
  const tree = await PagedTree.open(each.root, sourceOf(each).source);
  assert.ok(tree);
  return tree;
}

const CASES = load("pages");

test("every key, element, listing and range of a static tree is proven from its pages", async () => {
  for (const each of CASES.filter(({ root }) => root !== undefined)) {
    const tree = await opened(each);
    if (each.kind === "map") {
      const paths = Object.keys(each.arcs);
      for (const path of [...paths.filter((_, i) => i % Math.ceil(paths.length / 20) === 0), "no/such"])
        assert.equal(verifyKey(each.root, path, await tree.proveKey(path)), each.arcs[path] ?? null);
      const listing = verifyScan(each.root, { limit: 10_000 }, await tree.proveScan({ limit: 10_000 }));
      assert.deepEqual(listing.entries.map(({ segments }) => segments.join("/")).sort(), [...paths].sort());
    } else {
      for (const index of [0, 1, each.elements.length - 1, each.elements.length].filter((i) => i >= 0)) {
        const { target, size } = verifyIndex(each.root, index, await tree.proveIndex(index));
        assert.deepEqual(target === null ? undefined : [target, size], each.elements[index]);
      }
      const { segments, sizes } = verifyRange(each.root, 0, undefined, await tree.proveRange(0));
      assert.deepEqual(
        segments.map((target, i) => [target, sizes[i]]),
        each.elements,
      );
    }
  }
});

test("a lookup reads few pages, and a diff is proven from the pages of two trees", async () => {
  const maps = CASES.filter(({ kind, suite, root }) => kind === "map" && suite === "sha2-256" && root !== undefined);
  const large = maps.reduce((a, b) => (Object.keys(a.pages).length > Object.keys(b.pages).length ? a : b));
  const { source, read } = sourceOf(large);
  const tree = (await PagedTree.open(large.root, source)) as PagedTree;
  await tree.proveKey(Object.keys(large.arcs)[0] as string);
  assert.ok(read.length <= 4 && read.length < Object.keys(large.pages).length);
  const other = await opened(maps[1] as Case);
  const proofs = await tree.proveDiff(other, { limit: 5 });
  const found = verifyDiff({ a: tree.root.cid, b: other.root.cid }, { limit: 5 }, proofs);
  assert.ok(found.entries.length > 0);
  for (const { segments, before } of found.entries) assert.equal(before, large.arcs[segments.join("/")] ?? null);
});

test("a flipped bit in any byte of a page is refused", async () => {
  const each = CASES.find(({ arcs }) => arcs !== undefined && Object.keys(arcs).length > 2) as Case;
  const name = Object.keys(each.pages)[0] as string;
  const length = each.pages[name].length / 2;
  const height = { accepted: 0 };
  for (let at = 0; at < length; at++) {
    const spoil = (digest: string, page: Uint8Array) =>
      digest === name ? page.map((byte, i) => (i === at ? byte ^ 1 : byte)) : page;
    const { source } = sourceOf(each, spoil);
    try {
      const tree = (await PagedTree.open(each.root, source)) as PagedTree;
      const path = Object.keys(each.arcs)[0] as string;
      assert.equal(verifyKey(each.root, path, await tree.proveKey(path)), each.arcs[path]);
      height.accepted++; // height, weight and extent of a stub: no digest covers them, and no answer depends on them
    } catch (error) {
      assert.ok(error instanceof ProofError || error instanceof InvalidInput, String(error));
    }
  }
  assert.ok(height.accepted < length / 4);
});

test("pages are refused and accepted as the vectors state", async () => {
  const single = CASES.filter(({ page }) => page !== undefined);
  assert.ok(single.length > 5);
  for (const { kind, digest, page, why } of single) {
    const source: PageSource = { root: async () => unhex(page), page: async () => unhex(page) };
    const cid = (codec: string) => `f01${codec}1220${digest}`;
    const open = async () => {
      const isList = (unhex(page)[0] ?? 0) >= 0x10;
      return PagedTree.open(cid(isList ? "90e4c001" : "90e2c001"), source);
    };
    if (kind === "accepted") assert.ok(await open(), why);
    else await assert.rejects(open, (error) => error instanceof ProofError, why);
  }
});

test("records of folders", () => {
  const kinds = new Set<string>();
  for (const each of load("folders")) {
    kinds.add(each.kind);
    if (each.kind === "record") checkRecord(each);
    else if (each.kind === "bad_target")
      assert.throws(() => decodeAttributes(each.target, unhex(each.record)), ProofError, each.why);
    else if (each.kind === "bad_record") {
      const data = unhex(each.record);
      if (data.length <= 128)
        assert.throws(() => decodeAttributes(`f017100${varintHex(data.length)}${each.record}`), ProofError, each.why);
    }
  }
  assert.ok(kinds.has("record") && kinds.has("bad_record") && kinds.has("bad_target"));
});

function varintHex(value: number): string {
  return toHex(value < 128 ? Uint8Array.of(value) : Uint8Array.of((value & 127) | 128, value >> 7));
}

function checkRecord({ members, record, target }: Case): void {
  const found = decodeAttributes(target, unhex(record));
  assert.equal(found.kind, members.folder ? "folder" : members.link === undefined ? "file" : "link");
  assert.deepEqual(
    [found.size, found.mode, found.uid, found.gid],
    [members.size, members.mode, members.uid, members.gid],
  );
  assert.equal(found.mtime?.toString(), members.mtime === undefined ? undefined : BigInt(members.mtime).toString());
  if (typeof members.link === "string") assert.ok(equal(found.link as Uint8Array, unhex(members.link)));
}
