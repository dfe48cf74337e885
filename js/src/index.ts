/** Verifier of coregw proofs: the public surface. */

export {
  Cid,
  type CidLike,
  identityPayload,
  payloadCid,
  type TargetKind,
  verifyPayload,
} from "./cid.ts";
export { Conflict, CoregwError, InvalidInput, ProofError } from "./errors.ts";
export { encodeKey, type Path } from "./key.ts";
export { verifyDiffResult } from "./operation/diff.ts";
export { type ReadOutcome, verifyMapProof, verifyRead, verifyScanResult } from "./operation/read.ts";
export { verifyResolve } from "./operation/resolve.ts";
export type { Change } from "./query/changes.ts";
export {
  type Diff,
  type Element,
  type Range,
  type Scan,
  verifyChanges,
  verifyDiff,
  verifyIndex,
  verifyKey,
  verifyKeys,
  verifyRange,
  verifyScan,
  type WindowOptions,
} from "./verify.ts";
