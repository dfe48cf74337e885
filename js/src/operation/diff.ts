/** Verifier of a diff's response (section 5, "Diff"). */

import type { CidLike } from "../cid.ts";
import { ProofError } from "../errors.ts";
import { type Diff, verifyDiff, type WindowOptions } from "../verify.ts";
import { isObject } from "./json.ts";
import { compareResult, parseResult, proofOf } from "./prooflist.ts";

/**
 * Verify the response to `GET /v1/roots/{a}/diff/{b}` with the caller's own roots and parameters. O(proofs).
 * @throws InvalidInput if a root or a parameter is malformed.
 * @throws ProofError if anything is wrong in the result.
 */
export function verifyDiffResult(
  roots: { readonly a: CidLike; readonly b: CidLike },
  options: WindowOptions,
  result: unknown,
): Diff {
  const received = parseResult(result);
  const { proofs } = received;
  if (!isObject(proofs)) throw new ProofError("the result has no proofs");
  const found = verifyDiff(roots, options, { a: proofOf(proofs, "a"), b: proofOf(proofs, "b") });
  const entries = found.entries.map(({ segments, before, after }) => ({
    segments,
    before: before ?? undefined,
    after: after ?? undefined,
  }));
  compareResult(received, { entries, more: found.more, proofs: { a: proofs["a"], b: proofs["b"] } });
  return found;
}
