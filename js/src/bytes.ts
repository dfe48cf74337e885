/** Byte strings: comparison, bits, text, and a strict reader. */

export const EMPTY = new Uint8Array(0);

/** Numbers of the protocol (counts, measures and their sums) stay below this. */
export const NUMBER_LIMIT = 2 ** 53;

const MAX_VARINT_BYTES = 9;

/** Whether two byte strings are equal. */
export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/** Bit `i` of a byte string, counted from the top of each byte. */
export function bitAt(bytes: Uint8Array, i: number): 0 | 1 {
  return (((bytes[i >> 3] as number) >> (7 - (i & 7))) & 1) as 0 | 1;
}

/** The bits of a byte from its `n`-th on, 0 <= n <= 8, as a mask. */
export function tailMask(n: number): number {
  return 0xff >> n;
}

/** The first bit, below `bits`, in which two byte strings differ; -1 if there is none. */
export function firstDifference(a: Uint8Array, b: Uint8Array, bits: number): number {
  for (let i = 0; i << 3 < bits; i++) {
    const difference = (a[i] as number) ^ (b[i] as number);
    if (difference !== 0) {
      const bit = (i << 3) + Math.clz32(difference) - 24;
      return bit < bits ? bit : -1;
    }
  }
  return -1;
}

/** Compare two byte strings as a map orders keys. */
export function compare(a: Uint8Array, b: Uint8Array): number {
  const bit = firstDifference(a, b, 8 * Math.min(a.length, b.length));
  return bit < 0 ? a.length - b.length : bitAt(a, bit) - bitAt(b, bit);
}

export function concat(...parts: Uint8Array[]): Uint8Array {
  return join(parts);
}

/** As `concat`, for any number of parts: a call has a limit on its arguments. */
export function join(parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** The minimal LEB128 form of a number below 2^53. */
export function varint(value: number): Uint8Array {
  const bytes = [];
  let rest = value;
  while (rest > 127) {
    bytes.push((rest % 128) | 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
  return Uint8Array.from(bytes);
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** UTF-8 of a string, or null if it has a lone surrogate. */
export function toUtf8(text: string): Uint8Array | null {
  return /\p{Surrogate}/u.test(text) ? null : encoder.encode(text);
}

/** The string that bytes encode in UTF-8, or null. */
export function fromUtf8(bytes: Uint8Array): string | null {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

/** Strict, bounds-checked reader. Everything that does not parse goes to `refuse`, with the byte where it is. */
export class Reader {
  readonly bytes: Uint8Array;
  readonly #refuse: (message: string, offset: number) => never;
  at = 0;

  constructor(bytes: Uint8Array, refuse: (message: string, offset: number) => never) {
    this.bytes = bytes;
    this.#refuse = refuse;
  }

  get isAtEnd(): boolean {
    return this.at === this.bytes.length;
  }

  refuse(message: string, offset = this.at): never {
    this.#refuse(message, offset);
  }

  byte(): number {
    return this.bytes[this.at++] ?? this.refuse("truncated", this.bytes.length);
  }

  take(length: number): Uint8Array {
    if (length > this.bytes.length - this.at) this.refuse("truncated", this.bytes.length);
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** A minimal varint. Above 2^53 the number is rounded, but stays above. */
  varint(): number {
    const start = this.at;
    let value = 0;
    for (let i = 0; i < MAX_VARINT_BYTES; i++) {
      const byte = this.byte();
      value += (byte & 127) * 128 ** i;
      if (byte < 128) {
        if (byte === 0 && i > 0) this.refuse("a varint is not minimal", start);
        return value;
      }
    }
    return this.refuse("a varint is too long", start);
  }

  /** A varint below 2^53, and at least `least`. */
  number(what: string, least = 0): number {
    const start = this.at;
    const value = this.varint();
    if (value >= NUMBER_LIMIT) this.refuse(`${what} is not below 2^53`, start);
    if (value < least) this.refuse(`${what} is below ${least}`, start);
    return value;
  }
}
