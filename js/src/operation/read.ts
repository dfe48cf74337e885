/** Verifiers of `core.read`, `core.map-proof` and `core.scan` (section 5). */

import { parseRoot } from "../cid.ts";
import { InvalidInput } from "../errors.ts";
import { windowOf } from "../key.ts";
import { type Scan, verifyIndex, verifyKey, verifyKeys, verifyRange, verifyScan } from "../verify.ts";
import type { Json, JsonObject } from "./json.ts";
import {
  compareResult,
  expectedProoflist,
  expectedStep,
  link,
  mapStepKind,
  onlyStep,
  parseResult,
} from "./prooflist.ts";
import { checkMembers, integer, object, optionalInteger, parseRequest, segments, text } from "./request.ts";

const READ = "core.read/v0alpha1";
const MAP_PROOF = "core.map-proof/v0alpha1";
const SCAN = "core.scan/v0alpha1";
const MAX_ENTRIES = 1000;
const MAX_SEGMENTS = 10_000;

/** What a read proves. */
export interface ReadOutcome {
  /** The CID of the target; null if it is proven absent. For a range, the list itself. */
  readonly target: string | null;
  /** For a range, the CIDs of its elements. */
  readonly segments?: string[];
}

/**
 * Verify the result of a read, or the details of a 404 that prove an absence. O(proof).
 * @throws InvalidInput if the request is malformed.
 * @throws ProofError if anything is wrong in the result.
 */
export function verifyRead(request: unknown, result: unknown): ReadOutcome {
  const asked = parseRequest(request, READ, ["root", "query"]);
  const query = object(asked, "query");
  const root = text(asked, "root");
  switch (text(query, "kind")) {
    case "map_key":
      return readKey(root, query, result);
    case "list_index":
      return readIndex(root, query, result);
    case "list_range":
      return readRange(root, query, result);
    default:
      throw new InvalidInput("invalid_request", "query.kind: expected map_key, list_index or list_range");
  }
}

/** Compare a read's result: an absence has nothing but a prooflist. */
function compareRead(received: JsonObject, target: string | null, prooflist: unknown, more: object = {}): void {
  compareResult(received, target === null ? { prooflist } : { profile: READ, target, ...more, prooflist });
}

function readKey(root: string, query: JsonObject, result: unknown): ReadOutcome {
  checkMembers(query, ["kind", "segments"]);
  const path = segments(query["segments"], "segments");
  const map = parseRoot(root, "map");
  const received = parseResult(result);
  const { step, proof } = onlyStep(received);
  const target = verifyKey(map.cid, path, proof);
  const joined = path.join("/");
  const expected = expectedStep(mapStepKind(joined, target), map, target, { path: joined }, step);
  compareRead(received, target, expectedProoflist(map.cid.text, joined, [expected]));
  return { target };
}

function readIndex(root: string, query: JsonObject, result: unknown): ReadOutcome {
  checkMembers(query, ["kind", "index"]);
  const index = integer(query, "index");
  const list = parseRoot(root, "list");
  const received = parseResult(result);
  const { step, proof } = onlyStep(received);
  const { target, length } = verifyIndex(list.cid, index, proof);
  const expected = expectedStep("list_index", list, target, { index, length }, step);
  compareRead(received, target, expectedProoflist(list.cid.text, `list:${index}`, [expected]));
  return { target };
}

function readRange(root: string, query: JsonObject, result: unknown): ReadOutcome {
  checkMembers(query, ["kind", "start", "end"]);
  const [start, end] = [integer(query, "start"), optionalInteger(query, "end")];
  const list = parseRoot(root, "list");
  const received = parseResult(result);
  const { step, proof } = onlyStep(received);
  const { totalSize, sizes, offset, length, segments: found } = verifyRange(list.cid, start, end, proof);
  if (found.length > MAX_SEGMENTS) throw new InvalidInput("too_large", `more than ${MAX_SEGMENTS} segments`);
  const members = {
    start,
    end,
    length,
    total_size: totalSize,
    segments: found.map((each) => link(each)),
    sizes,
    offset,
  };
  const target = list.cid.text;
  const expected = expectedProoflist(target, `range:${start}:${end ?? ""}`, [
    expectedStep("list_range", list, target, members, step),
  ]);
  compareRead(received, target, expected, { range_segments: found });
  return { target, segments: found };
}

/**
 * Verify a map proof. Returns the target's CID, or null if the key is proven absent; for a request with `keys`, an array
 * of them in the order of the request. Throws as `verifyRead`.
 */
export function verifyMapProof(request: unknown, result: unknown): string | null | (string | null)[] {
  const asked = parseRequest(request, MAP_PROOF, ["root", "key", "keys"]);
  const map = parseRoot(text(asked, "root"), "map");
  if ("keys" in asked) {
    if ("key" in asked) throw new InvalidInput("invalid_request", "key together with keys");
    return proveKeys(map, asked["keys"], result);
  }
  const path = segments(asked["key"], "key");
  const received = parseResult(result);
  const { step, proof } = onlyStep(received);
  const target = verifyKey(map.cid, path, proof);
  const joined = path.join("/");
  const expected = expectedStep(mapStepKind(joined, target), map, target, { path: joined }, step);
  compareResult(received, {
    profile: MAP_PROOF,
    present: target !== null,
    target: target ?? undefined,
    prooflist: expectedProoflist(map.cid.text, joined, [expected]),
  });
  return target;
}

function proveKeys(map: ReturnType<typeof parseRoot>, keys: Json | undefined, result: unknown): (string | null)[] {
  if (!Array.isArray(keys)) throw new InvalidInput("invalid_request", "keys: expected an array");
  const paths = keys.map((each, i) => segments(each, `keys[${i}]`));
  const received = parseResult(result);
  const { step, proof } = onlyStep(received);
  const targets = verifyKeys(map.cid, paths, proof);
  const members = { keys: paths.map((each) => each.join("/")), targets: targets.map((each) => link(each)) };
  const expected = expectedStep("map_keys", map, map.cid.text, members, step);
  const prooflist = expectedProoflist(map.cid.text, `keys:${paths.length}`, [expected]);
  compareResult(received, { profile: MAP_PROOF, targets, prooflist });
  return targets;
}

/** Verify one page of a listing. Throws as `verifyRead`. */
export function verifyScanResult(request: unknown, result: unknown): Scan {
  const asked = parseRequest(request, SCAN, ["root", "prefix", "after", "limit"]);
  const map = parseRoot(text(asked, "root"), "map");
  const prefix = segments(asked["prefix"], "prefix", true);
  const after = "after" in asked ? segments(asked["after"], "after") : undefined;
  const limit = optionalInteger(asked, "limit") ?? MAX_ENTRIES;
  if (limit < 1 || limit > MAX_ENTRIES)
    throw new InvalidInput("invalid_request", `limit: expected 1 to ${MAX_ENTRIES}`);
  const options = { prefix, limit, ...(after === undefined ? {} : { after }) };
  windowOf(prefix, after);
  const received = parseResult(result);
  const { step, proof } = onlyStep(received);
  const listing = verifyScan(map.cid, options, proof);
  const members = { prefix, after, limit, more: listing.more };
  const expected = expectedStep("map_scan", map, map.cid.text, members, step);
  const prooflist = expectedProoflist(map.cid.text, `scan:${prefix.join("/")}`, [expected]);
  compareResult(received, { profile: SCAN, entries: listing.entries, more: listing.more, prooflist });
  return listing;
}
