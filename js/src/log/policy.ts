/** Trust policies (c2sp.org/tlog-policy): whose signature, and how many cosignatures, a checkpoint needs. */

import { fromUtf8, toHex, toUtf8 } from "../bytes.ts";
import { InvalidInput, ProofError, shown } from "../errors.ts";
import { type Checkpoint, type Note, readCheckpoint, VerifierKey } from "./note.ts";

const MAX_POLICY = 65_536;
const MAX_LINES = 1000;
// biome-ignore lint/suspicious/noControlCharactersInRegex: what a policy must not have
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/;

/** A string with one character an octet: names are octets, whatever they encode. */
function octetsOf(policy: string | Uint8Array): string {
  const bytes = typeof policy === "string" ? (toUtf8(policy) ?? refuse("policy: not UTF-8")) : policy;
  if (bytes.length > MAX_POLICY) refuse(`policy: more than ${MAX_POLICY} bytes`);
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}

/** A word for a message, or a key; null if its octets are not UTF-8. */
function textOf(octets: string): string | null {
  return fromUtf8(Uint8Array.from(octets, (octet) => octet.charCodeAt(0)));
}

function quoted(octets: string): string {
  return shown(textOf(octets) ?? octets);
}

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

  /**
   * @param policy The file, as text or in octets, which need not be UTF-8.
   * @throws InvalidInput `invalid_request`, which names the line.
   */
  constructor(policy: string | Uint8Array) {
    const lines = octetsOf(policy).split("\n");
    if (lines.length > MAX_LINES + 1) refuse(`policy: more than ${MAX_LINES} lines`);
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

  #key(octets: string, isWitness: boolean): VerifierKey {
    const key = new VerifierKey(textOf(octets) ?? refuse(`${quoted(octets)}: not UTF-8`));
    if (key.isWitness !== isWitness)
      refuse(`the key ${key.name} is not of the type of ${isWitness ? "witnesses" : "logs"}`);
    const kindAndKey = `${isWitness} ${toHex(key.publicKey)}`;
    if (this.#keys.has(kindAndKey)) refuse(`the public key of ${key.name} is there twice`);
    this.#keys.add(kindAndKey);
    return key;
  }

  #define(name: string): void {
    if (name === "none" || this.#witnesses.has(name) || this.#groups.has(name)) refuse(`${quoted(name)} is taken`);
  }

  #known(name: string): void {
    if (!this.#witnesses.has(name) && !this.#groups.has(name))
      refuse(`${quoted(name)} is not defined before this line`);
  }

  #threshold(text: string, members: readonly string[]): number {
    for (const member of members) {
      this.#known(member);
      if (this.#members.has(member)) refuse(`${quoted(member)} is a member twice`);
      this.#members.add(member);
    }
    const number = /^[1-9][0-9]{0,3}$/.test(text) ? Number(text) : 0;
    const least = text === "all" ? members.length : text === "any" ? 1 : number;
    if (least < 1 || least > members.length)
      refuse(`${quoted(text)}: expected all, any or a number from 1 to ${members.length}`);
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
  cosigners(note: Note): { readonly name: string; readonly seconds: bigint }[] {
    const found = [...this.#witnesses.values()].map((key) => ({ name: key.name, seconds: key.verify(note) ?? 0n }));
    return found.filter(({ seconds }) => seconds > 0n);
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
