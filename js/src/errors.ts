/** Errors of the verifier, with the codes of the protocol. */

/** What every error of this package is. */
export class CoregwError extends Error {
  /** A code of the protocol, such as `invalid_cid`. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = new.target.name;
    this.code = code;
  }
}

/** An argument of the caller is malformed, or does not fit the others. */
export class InvalidInput extends CoregwError {}

/** The caller's changes do not fit the tree: `before_mismatch` or `invalid_change`. */
export class Conflict extends CoregwError {}

/** A proof, a result, a page or a payload is not what the caller's root or CID says. Nothing in it may be used. */
export class ProofError extends CoregwError {
  /** The byte of the proof at which it is malformed, if the refusal has one. */
  readonly offset: number | undefined;

  constructor(message: string, offset?: number) {
    super("invalid_proof", offset === undefined ? message : `byte ${offset}: ${message}`);
    this.offset = offset;
  }
}

/** Shorten a value for a message. */
export function shown(value: string): string {
  return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}...` : value);
}
