/** Strict JSON, as section 5 demands it of requests and results. */

import { fromUtf8, NUMBER_LIMIT } from "../bytes.ts";

export type Json = null | boolean | number | string | Json[] | JsonObject;

/** Members of an object; without a prototype, so that no member has a special meaning. */
export interface JsonObject {
  [member: string]: Json;
}

const MAX_NESTING = 32;

/** Why a text is not the JSON that section 5 allows. */
export class JsonError extends Error {}

/**
 * Parse strictly: no duplicate members, fractions, exponents, signs, integers past 2^53 - 1 or lone surrogates.
 * A value that is neither text nor bytes is written as JSON first.
 * @throws JsonError
 */
export function parseJson(input: unknown): Json {
  const text = typeof input === "string" ? input : input instanceof Uint8Array ? fromUtf8(input) : write(input);
  if (text === null) throw new JsonError("not UTF-8");
  const parser = new Parser(text);
  return parser.document();
}

function write(input: unknown): string {
  const text = JSON.stringify(input) as string | undefined;
  if (text === undefined) throw new JsonError("not a JSON value");
  return text;
}

class Parser {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Json {
    const value = this.#value(0);
    this.#skip();
    if (this.#at !== this.#text.length) this.#refuse("something follows the value");
    return value;
  }

  #refuse(why: string): never {
    throw new JsonError(`character ${this.#at}: ${why}`);
  }

  #skip(): void {
    while (" \t\n\r".includes(this.#text[this.#at] ?? "-")) this.#at++;
  }

  #take(mark: string): boolean {
    this.#skip();
    if (this.#text[this.#at] !== mark) return false;
    this.#at++;
    return true;
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0] ?? null;
    this.#at += found?.length ?? 0;
    return found;
  }

  #value(nesting: number): Json {
    if (nesting > MAX_NESTING) this.#refuse(`nested deeper than ${MAX_NESTING}`);
    if (this.#take("{")) return this.#object(nesting + 1);
    if (this.#take("[")) return this.#array(nesting + 1);
    if (this.#text[this.#at] === '"') return this.#string();
    const word = this.#match(/(?:null|true|false|(?:0|[1-9][0-9]*))(?![\w.+-])/y);
    if (word === null) return this.#refuse("expected a value");
    if (word === "null" || word === "true" || word === "false") return JSON.parse(word);
    const number = Number(word);
    return number < NUMBER_LIMIT ? number : this.#refuse("a number is past 2^53 - 1");
  }

  #string(): string {
    if (!this.#take('"')) this.#refuse("expected a string");
    const start = this.#at - 1;
    do {
      this.#at = this.#text.indexOf('"', this.#at) + 1; // no regular expression: a long string overflows its stack
      if (this.#at === 0) this.#refuse("a string does not end");
    } while (this.#isEscaped(this.#at - 1));
    let value: string;
    try {
      value = JSON.parse(this.#text.slice(start, this.#at));
    } catch {
      return this.#refuse("a malformed string");
    }
    return /\p{Surrogate}/u.test(value) ? this.#refuse("a lone surrogate") : value;
  }

  /** Whether an odd number of backslashes precedes. */
  #isEscaped(at: number): boolean {
    let start = at;
    while (this.#text[start - 1] === "\\") start--;
    return (at - start) % 2 === 1;
  }

  #array(nesting: number): Json[] {
    const items: Json[] = [];
    this.#checkNesting(nesting);
    if (this.#take("]")) return items;
    do items.push(this.#value(nesting));
    while (this.#take(","));
    return this.#take("]") ? items : this.#refuse("expected , or ]");
  }

  #object(nesting: number): JsonObject {
    const members: JsonObject = Object.create(null);
    this.#checkNesting(nesting);
    if (this.#take("}")) return members;
    do {
      const name = this.#string();
      if (Object.hasOwn(members, name)) this.#refuse("a duplicate member");
      if (!this.#take(":")) this.#refuse("expected :");
      members[name] = this.#value(nesting);
    } while (this.#take(","));
    return this.#take("}") ? members : this.#refuse("expected , or }");
  }

  #checkNesting(nesting: number): void {
    if (nesting > MAX_NESTING) this.#refuse(`nested deeper than ${MAX_NESTING}`);
  }
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Where two values differ first, as a path of members; null if they are equal. An undefined member is absent. */
export function difference(a: Json | undefined, b: unknown, at = ""): string | null {
  if (Array.isArray(a) && Array.isArray(b)) {
    if (a.length !== b.length) return `${at}: ${a.length} items instead of ${b.length}`;
    return first(a.map((item, i) => difference(item, b[i], `${at}[${i}]`)));
  }
  if (isObject(a) && typeof b === "object" && b !== null && !Array.isArray(b)) {
    const expected = b as Record<string, unknown>;
    const names = new Set([...Object.keys(a), ...Object.keys(expected)]);
    const wanted = (name: string) => (Object.hasOwn(expected, name) ? expected[name] : undefined); // not __proto__
    return first([...names].map((name) => difference(a[name], wanted(name), `${at}.${name}`)));
  }
  return a === b ? null : at || "the value";
}

function first(places: (string | null)[]): string | null {
  return places.find((place) => place !== null) ?? null;
}
