/** Text forms of bytes: the multibase prefixes that a CID may have, and the base64 of JSON. */

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";
const BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz";
const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

function valuesOf(alphabet: string): Map<string, number> {
  return new Map(Array.from(alphabet, (letter, value) => [letter, value]));
}

/** As `valuesOf`, with each letter of a lower-case alphabet in either case. */
function valuesOfEither(alphabet: string): Map<string, number> {
  return new Map([...valuesOf(alphabet), ...valuesOf(alphabet.toUpperCase())]);
}

/** Decode a base with a power of two as radix. Bits past the last whole byte must be 0, and fewer than a digit has. */
function fromBits(text: string, digits: Map<string, number>, bitsEach: number): Uint8Array | null {
  const bytes = new Uint8Array((text.length * bitsEach) >> 3);
  let [held, bits, at] = [0, 0, 0];
  for (let i = 0; i < text.length; i++) {
    const digit = digits.get(text[i] as string);
    if (digit === undefined) return null;
    held = (held << bitsEach) | digit;
    bits += bitsEach;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = held >> bits;
      held &= (1 << bits) - 1;
    }
  }
  return held === 0 && bits < bitsEach ? bytes : null;
}

/** Decode a base with another radix: each leading zero digit is a zero byte. Quadratic, so callers bound the length. */
function fromRadix(text: string, digits: Map<string, number>, radix: number): Uint8Array | null {
  const bytes: number[] = []; // the least significant first
  for (const letter of text) {
    let carry = digits.get(letter);
    if (carry === undefined) return null;
    for (let i = 0; i < bytes.length; i++) {
      carry += (bytes[i] as number) * radix;
      bytes[i] = carry & 255;
      carry >>= 8;
    }
    for (; carry > 0; carry >>= 8) bytes.push(carry & 255);
  }
  for (let i = 0; digits.get(text[i] as string) === 0; i++) bytes.push(0);
  return Uint8Array.from(bytes.reverse());
}

/** The bytes of a text with a multibase prefix, or null. Base 16, 32 and 36 may be in either case, prefix and digits. */
export function fromMultibase(text: string): Uint8Array | null {
  const rest = text.slice(1);
  switch (text[0]) {
    case "b":
    case "B":
      return fromBits(rest, valuesOfEither(BASE32), 5);
    case "f":
    case "F":
      return fromBits(rest, valuesOfEither("0123456789abcdef"), 4);
    case "k":
    case "K":
      return fromRadix(rest, valuesOfEither(BASE36), 36);
    case "z":
      return fromBase58(rest);
    case "m":
      return fromBits(rest, valuesOf(`${LETTERS}+/`), 6);
    case "u":
      return fromBits(rest, valuesOf(`${LETTERS}-_`), 6);
    default:
      return null;
  }
}

export function fromBase58(text: string): Uint8Array | null {
  return fromRadix(text, valuesOf(BASE58), 58);
}

/** Lower-case base32 without padding. */
export function toBase32(bytes: Uint8Array): string {
  let [text, held, bits] = ["", 0, 0];
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xfff;
    for (bits += 8; bits >= 5; ) {
      bits -= 5;
      text += BASE32[(held >> bits) & 31];
    }
  }
  return bits > 0 ? text + BASE32[(held << (5 - bits)) & 31] : text;
}

const BASE64 = valuesOf(`${LETTERS}+/`);

/** The bytes of canonical base64 with padding (RFC 4648, section 4), or null. */
export function fromBase64(text: string): Uint8Array | null {
  if (text.length % 4 !== 0) return null;
  const end = text.endsWith("==") ? -2 : text.endsWith("=") ? -1 : text.length;
  return fromBits(text.slice(0, end), BASE64, 6);
}
