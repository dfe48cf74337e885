/** Paths and the keys that a map sorts and branches on (section 2). */

import { concat, fromUtf8, toUtf8 } from "./bytes.ts";
import { InvalidInput, shown } from "./errors.ts";

const MAX_TEXT_BYTES = 4096;

export const MAX_KEY_BYTES = 8194;

/** A path: its segments, or its text form. */
export type Path = string | readonly string[];

/**
 * The segments of a path; the text form is split on `/`.
 * @throws InvalidInput `invalid_path`.
 */
export function segmentsOf(path: Path): string[] {
  const segments = typeof path === "string" ? path.split("/") : [...path];
  if (segments.length === 0) throw invalid("a path has at least one segment");
  checkSegments(segments);
  return segments;
}

function checkSegments(segments: readonly string[]): void {
  let length = segments.length - 1;
  for (const [i, segment] of segments.entries()) {
    if (segment === "") throw invalid(`segments[${i}]: empty segment`);
    if (segment.includes("/")) throw invalid(`segments[${i}]: ${shown(segment)} has a "/"`);
    const bytes = toUtf8(segment);
    if (bytes === null) throw invalid(`segments[${i}]: a lone surrogate`);
    length += bytes.length;
  }
  if (length > MAX_TEXT_BYTES) throw invalid(`a path of ${length} bytes is longer than ${MAX_TEXT_BYTES}`);
}

function invalid(message: string): InvalidInput {
  return new InvalidInput("invalid_path", message);
}

/** Segments, escaped and joined, without an ending. */
function joined(segments: readonly string[]): Uint8Array {
  const bytes: number[] = [];
  for (const [i, segment] of segments.entries()) {
    if (i > 0) bytes.push(0, 1);
    for (const byte of toUtf8(segment) as Uint8Array) {
      bytes.push(byte);
      if (byte === 0) bytes.push(0xff);
    }
  }
  return Uint8Array.from(bytes);
}

/**
 * The key of a path. O(length).
 * @throws InvalidInput `invalid_path`.
 */
export function encodeKey(path: Path): Uint8Array {
  return concat(joined(segmentsOf(path)), Uint8Array.of(0, 0));
}

/** The segments of a key, or null if it is not a key of section 2. */
export function decodeKey(key: Uint8Array): string[] | null {
  const segments: string[] = [];
  let segment: number[] = [];
  for (let i = 0; i < key.length; i++) {
    const byte = key[i] as number;
    if (byte !== 0) {
      segment.push(byte);
      continue;
    }
    const next = key[++i];
    if (next === 0xff) {
      segment.push(0);
    } else {
      const text = fromUtf8(Uint8Array.from(segment));
      if (text === null) return null;
      segments.push(text);
      segment = [];
      if (next === 0) return i + 1 === key.length && isPath(segments) ? segments : null;
      if (next !== 1) return null;
    }
  }
  return null;
}

function isPath(segments: readonly string[]): boolean {
  try {
    checkSegments(segments);
    return true;
  } catch {
    return false;
  }
}

/** The window of a listing or a diff: keys from `lo` up to `hi`. A bound that is null does not exist. */
export interface Window {
  readonly lo: Uint8Array | null;
  readonly hi: Uint8Array | null;
  /** Whether `lo` itself is not in the window. */
  readonly isAfter: boolean;
}

/**
 * The window of a prefix (`[]` or `""`: every key), continued after a whole path that lies in it.
 * @throws InvalidInput `invalid_path`.
 */
export function windowOf(prefix: Path, after?: Path): Window {
  const within = prefix.length === 0 ? [] : segmentsOf(prefix);
  const bytes = joined(within);
  const hi = within.length === 0 ? null : concat(bytes, Uint8Array.of(0, 2));
  if (after === undefined) return { lo: hi && concat(bytes, Uint8Array.of(0, 0)), hi, isAfter: false };
  const start = segmentsOf(after);
  if (within.some((segment, i) => segment !== start[i])) throw invalid("after is not in the window of the prefix");
  return { lo: encodeKey(start), hi, isAfter: true };
}
