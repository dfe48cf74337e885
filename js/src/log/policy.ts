/** Trust policies (c2sp.org/tlog-policy): whose signature, and how many cosignatures, a checkpoint needs. */

import { toHex } from "../bytes.ts";
import { InvalidInput, ProofError, shown } from "../errors.ts";
import { type Checkpoint, type Note, readCheckpoint, VerifierKey } from "./note.ts";

const MAX_POLICY = 65_536;
const MAX_LINES = 1000;
// biome-ignore lint/suspicious/noControlCharactersInRegex: what a policy must not have
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/;

interface Group {
  readonly threshold: number;
  readonly members: readonly string[];
}

function refuse(message: string): never {
  throw new InvalidInput("invalid_request", message);
}

/** Which logs are known, and which witnesses must have cosigned their checkpoints. */
export class Policy {
  readonly #logs: VerifierKey[] = [];
  readonly #witnesses = new Map<string, VerifierKey>();
  readonly #groups = new Map<string, Group>();
  readonly #members = new Set<string>();
  readonly #keys = new Set<string>();
  #quorum: string | null = null;

  /** @throws InvalidInput `invalid_request`, which names the line. */
  constructor(text: string) {
    const lines = text.split("\n");
    if (text.length > MAX_POLICY || lines.length > MAX_LINES + 1) refuse("policy: too long");
    lines.forEach((line, i) => {
      try {
        if (CONTROL.test(line)) refuse("a control character");
        this.#read(line.split(/[ \t]+/).filter((word) => word !== ""));
      } catch (error) {
        if (!(error instanceof InvalidInput)) throw error;
        throw new InvalidInput(error.code, `policy, line ${i + 1}: ${error.message}`);
      }
    });
    if (this.#quorum === null) refuse("policy: no quorum line");
  }

  #read(words: string[]): void {
    const [kind, name, third, ...rest] = words;
    if (kind === undefined || kind.startsWith("#")) return;
    if (kind === "log" && name !== undefined && words.length <= 3) {
      this.#logs.push(this.#key(name, false));
    } else if (kind === "witness" && name !== undefined && third !== undefined && words.length <= 4) {
      this.#define(name);
      this.#witnesses.set(name, this.#key(third, true));
    } else if (kind === "group" && name !== undefined && third !== undefined && rest.length > 0) {
      this.#define(name);
      this.#groups.set(name, { threshold: this.#threshold(third, rest), members: rest });
    } else if (kind === "quorum" && name !== undefined && words.length === 2) {
      if (this.#quorum !== null) refuse("a second quorum");
      if (name !== "none") this.#known(name);
      this.#quorum = name;
    } else refuse("expected log, witness, group or quorum, each with its words");
  }

  #key(text: string, isWitness: boolean): VerifierKey {
    const key = new VerifierKey(text);
    if (key.isWitness !== isWitness)
      refuse(`the key ${key.name} is not of the type of ${isWitness ? "witnesses" : "logs"}`);
    const hex = toHex(key.publicKey);
    if (this.#keys.has(hex)) refuse(`the public key of ${key.name} is there twice`);
    this.#keys.add(hex);
    return key;
  }

  #define(name: string): void {
    if (name === "none" || this.#witnesses.has(name) || this.#groups.has(name)) refuse(`${shown(name)} is taken`);
  }

  #known(name: string): void {
    if (!this.#witnesses.has(name) && !this.#groups.has(name)) refuse(`${shown(name)} is not defined before this line`);
  }

  #threshold(text: string, members: readonly string[]): number {
    for (const member of members) {
      this.#known(member);
      if (this.#members.has(member)) refuse(`${shown(member)} is a member twice`);
      this.#members.add(member);
    }
    const number = /^[1-9][0-9]{0,3}$/.test(text) ? Number(text) : 0;
    const least = text === "all" ? members.length : text === "any" ? 1 : number;
    if (least < 1 || least > members.length)
      refuse(`${shown(text)}: expected all, any or a number from 1 to ${members.length}`);
    return least;
  }

  /**
   * The checkpoint of a note that meets the policy. O(signatures).
   * @throws ProofError if no known log signed it, too few witnesses cosigned it, or a signature by a known key is wrong.
   */
  verify(note: Note): Checkpoint {
    const found = readCheckpoint(note);
    const signed = this.#logs.filter((key) => key.name === found.origin).map((key) => key.verify(note));
    if (signed.every((each) => each === null))
      throw new ProofError(`checkpoint of ${shown(found.origin)}: no known log has signed it`);
    if (!this.#isWitnessed(note))
      throw new ProofError(
        `checkpoint of ${shown(found.origin)} at size ${found.size}: too few witnesses have cosigned it`,
      );
    return found;
  }

  /** The witnesses of the policy that cosigned a note, each with its time in seconds since 1970. Throws as `verify`. */
  cosigners(note: Note): { readonly name: string; readonly seconds: number }[] {
    const found = [...this.#witnesses.values()].map((key) => ({ name: key.name, seconds: key.verify(note) ?? 0 }));
    return found.filter(({ seconds }) => seconds > 0);
  }

  #isWitnessed(note: Note): boolean {
    if (this.#quorum === "none") return true;
    const met = new Map<string, boolean>();
    for (const [name, key] of this.#witnesses) met.set(name, Boolean(key.verify(note)));
    for (const [name, { threshold, members }] of this.#groups) // members precede their groups
      met.set(name, members.filter((member) => met.get(member)).length >= threshold);
    return met.get(this.#quorum as string) === true;
  }
}
