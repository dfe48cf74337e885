/** Verifier of `core.resolve` (section 5, "Resolve"). */

import { Cid, parseRoot, type Root } from "../cid.ts";
import { ProofError } from "../errors.ts";
import { verifyIndex, verifyKey } from "../verify.ts";
import type { JsonObject } from "./json.ts";
import {
  compareResult,
  expectedProoflist,
  expectedStep,
  mapStepKind,
  parseResult,
  proofOf,
  stepsOf,
} from "./prooflist.ts";
import { parseRequest, segments, text } from "./request.ts";

const PROFILE = "core.resolve/v0alpha1";

/**
 * Verify the result of a resolve, and return the CID of the target. O(proofs).
 * @param request The request that was sent: an object, or JSON as text or bytes.
 * @param result The result that was received.
 * @throws InvalidInput if the request is malformed.
 * @throws ProofError if anything is wrong in the result.
 */
export function verifyResolve(request: unknown, result: unknown): string {
  const asked = parseRequest(request, PROFILE, ["root", "segments"]);
  const root = new Cid(text(asked, "root")).text;
  const path = segments(asked["segments"], "segments", true);
  if (path.length > 0) parseRoot(root);
  const received = parseResult(result);
  let [target, rest] = [root, path];
  const steps = stepsOf(received).map((step) => {
    if (rest.length === 0) throw new ProofError("more steps than the path has segments");
    const next = follow(rootOf(target), rest, step);
    target = next.target;
    rest = rest.slice(next.consumed);
    return next.expected;
  });
  if (rest.length > 0) throw new ProofError("the steps do not reach the end of the path");
  compareResult(received, { profile: PROFILE, target, prooflist: expectedProoflist(root, path.join("/"), steps) });
  return target;
}

function rootOf(cid: string): Root {
  if (new Cid(cid).kind === "cas") throw new ProofError("a step leads on from a payload");
  return parseRoot(cid);
}

interface Next {
  target: string;
  consumed: number;
  expected: Record<string, unknown>;
}

function follow(from: Root, rest: readonly string[], step: JsonObject): Next {
  return from.kind === "map" ? followMap(from, rest, step) : followList(from, rest, step);
}

function followMap(from: Root, rest: readonly string[], step: JsonObject): Next {
  const path = step["path"];
  const taken = typeof path === "string" ? path.split("/") : [];
  if (typeof path !== "string" || taken.some((segment, i) => segment !== rest[i]))
    throw new ProofError("a step with another path than the request's");
  const target = verifyKey(from.cid, path, proofOf(step));
  if (target === null) throw new ProofError("a step leads nowhere");
  return {
    target,
    consumed: taken.length,
    expected: expectedStep(mapStepKind(path, target), from, target, { path }, step),
  };
}

function followList(from: Root, rest: readonly string[], step: JsonObject): Next {
  const segment = rest[0] as string;
  const index = Number(segment);
  if (!/^(0|[1-9][0-9]*)$/.test(segment) || !Number.isSafeInteger(index))
    throw new ProofError("a segment at a list is not an index");
  const { target, length } = verifyIndex(from.cid, index, proofOf(step));
  if (target === null) throw new ProofError("a step leads past the end of a list");
  return { target, consumed: 1, expected: expectedStep("list_index", from, target, { index, length }, step) };
}
