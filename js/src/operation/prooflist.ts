/** Prooflists: a result is compared with the one that its own proofs imply (section 5). */

import type { Root } from "../cid.ts";
import { ProofError } from "../errors.ts";
import { fromBase64 } from "../multibase.ts";
import { difference, isObject, type Json, JsonError, type JsonObject, parseJson } from "./json.ts";

/** A link, or null. */
export type Link = { "/": string } | null;

export function link(cid: string): { "/": string };
export function link(cid: string | null): Link;
export function link(cid: string | null): Link {
  return cid === null ? null : { "/": cid };
}

/** Parse a result. @throws ProofError if it is not JSON of section 5. */
export function parseResult(result: unknown): JsonObject {
  let parsed: Json;
  try {
    parsed = parseJson(result);
  } catch (error) {
    if (error instanceof JsonError) throw new ProofError(`the result is malformed: ${error.message}`);
    throw error;
  }
  return isObject(parsed) ? parsed : refuse("the result is not an object");
}

function refuse(message: string): never {
  throw new ProofError(message);
}

/** The steps of a result. */
export function stepsOf(result: JsonObject): JsonObject[] {
  const { prooflist } = result;
  const steps = isObject(prooflist) ? prooflist["steps"] : undefined;
  return Array.isArray(steps) && steps.every(isObject) ? steps : refuse("the result has no list of steps");
}

/** The only step of a result, and its proof. */
export function onlyStep(result: JsonObject): { step: JsonObject; proof: Uint8Array } {
  const steps = stepsOf(result);
  const step = steps[0];
  if (step === undefined || steps.length !== 1) return refuse(`expected one step instead of ${steps.length}`);
  return { step, proof: proofOf(step) };
}

/** The proof of a step. */
export function proofOf(step: JsonObject, name = "proof"): Uint8Array {
  const text = step[name];
  return (typeof text === "string" ? fromBase64(text) : null) ?? refuse(`${name}: expected canonical base64`);
}

/** A step as it must be; its proof is the one that it has. */
export function expectedStep(
  kind: string,
  from: Root,
  target: string | null,
  members: Record<string, unknown>,
  step: JsonObject,
): Record<string, unknown> {
  return {
    kind,
    from: link(from.cid.text),
    target: link(target),
    ...members,
    evidence_kind: "tree",
    evidence_backend: from.suite.name,
    proof: step["proof"],
  };
}

/** A prooflist as it must be. */
export function expectedProoflist(root: string, query: string, steps: unknown[]): Record<string, unknown> {
  return { root: link(root), query: query === "" ? undefined : query, steps };
}

/** @throws ProofError if a result is not as it must be. */
export function compareResult(result: JsonObject, expected: Record<string, unknown>): void {
  const place = difference(result, expected);
  if (place !== null) refuse(`${place.replace(/^\./, "")} is not what is proven or was asked`);
}

/** The kind of a map's step. */
export function mapStepKind(path: string, target: string | null): string {
  if (target === null) return "map_absence";
  return path === "@payload" ? "payload_binding" : "map_step";
}
