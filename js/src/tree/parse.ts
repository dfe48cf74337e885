/** Strict parser of proofs and pages (section 4, and section 8 for pages). */

import { concat, EMPTY, Reader, tailMask } from "../bytes.ts";
import { Cid } from "../cid.ts";
import { ProofError } from "../errors.ts";
import { type Hash, hashOf, type Suite } from "../hashes.ts";
import { decodeKey } from "../key.ts";
import { cutLabel, encodeNode, leftCount, Node, pathBuffer, sumChildren, writeBit, writeLabel } from "./node.ts";

/** The bits of the longest key. */
export const MAX_BITS = 65_552;
/** Counts below 2^53 allow no list a greater depth. */
const MAX_LIST_DEPTH = 53;
const MAX_HEIGHT = 2 ** 8;
const MAX_WEIGHT = 2 ** 16;
const MAX_EXTENT = 2 ** 32;

/** What is parsed: the kind and the hash function of the tree, and whether it is a page. */
export interface Format {
  readonly kind: "map" | "list";
  readonly suite: Suite;
  readonly isPage: boolean;
}

/**
 * What a query can visit of a tree, at most. A leaf of a map takes a few bytes of a proof, but its whole key is hashed, and
 * so is the prefix of an inner node: what shows more is refused before it is hashed.
 */
export interface VisitLimits {
  /** Nodes that are visited, and their children. */
  readonly nodes: number;
  readonly leaves: number;
}

/** The limits of a tree of which nothing but its length is known. */
export const NO_LIMITS: VisitLimits = { nodes: Number.POSITIVE_INFINITY, leaves: Number.POSITIVE_INFINITY };

/**
 * Parse a pruned tree and hash it, with one path buffer and without recursion. O(bytes), and up to 8 KiB of hashing for each
 * inner node and each leaf.
 * @throws ProofError if points 1 to 3 of "What a verifier checks" do not hold, or the tree shows more than `limits`.
 */
export function parseTree(bytes: Uint8Array, format: Format, limits: VisitLimits): Node {
  const parser = new Parser(bytes, format, limits);
  const top = parser.parse();
  if (!parser.reader.isAtEnd) parser.reader.refuse("bytes follow the tree");
  return top;
}

class Parser {
  readonly reader: Reader;
  readonly #format: Format;
  readonly #hash: Hash;
  readonly #path = pathBuffer();
  readonly #limits: VisitLimits;
  #nodes = 0;
  #leaves = 0;

  constructor(bytes: Uint8Array, format: Format, limits: VisitLimits) {
    this.#format = format;
    this.#limits = limits;
    this.#hash = hashOf(format.suite.code);
    this.reader = new Reader(bytes, (message, offset) => {
      throw new ProofError(message, offset);
    });
  }

  parse(): Node {
    const open: Node[] = [];
    for (;;) {
      const above = open.at(-1);
      let node = this.#node(above === undefined ? 0 : above.end + 1, above !== undefined);
      if (node.kind === "inner") {
        open.push(node);
        this.#turn(node, 0);
        if (this.#format.kind === "list" && open.length > MAX_LIST_DEPTH)
          this.reader.refuse("a list is too deep", node.offset);
        continue;
      }
      for (;;) {
        this.#finish(node);
        const parent = open.at(-1);
        if (parent === undefined) return node;
        if (parent.left === null) {
          parent.left = node;
          this.#turn(parent, 1);
          break;
        }
        parent.right = node;
        node = parent;
        open.pop();
      }
    }
  }

  #turn(node: Node, bit: 0 | 1): void {
    if (this.#format.kind === "map") writeBit(this.#path, node.end, bit);
  }

  /** Check the sums and the shape of a node whose children are complete, and hash it. */
  #finish(node: Node): void {
    const { kind } = this.#format;
    if (node.kind === "stub") return;
    if (node.kind === "inner") {
      if (!sumChildren(node)) this.reader.refuse("a sum is not below 2^53", node.offset);
      if (kind === "list" && (node.left as Node).count !== leftCount(node.count))
        this.reader.refuse("a list has another shape", node.offset);
    }
    node.digest = this.#hash(encodeNode(kind, node, this.#path));
  }

  #node(floor: number, isBelow: boolean): Node {
    const offset = this.reader.at;
    const tag = this.reader.byte();
    const base = this.#format.kind === "map" ? 0x00 : 0x10;
    const kind = (["empty", "leaf", "inner", "stub"] as const)[tag - base];
    if (kind === undefined) this.reader.refuse(`${tag} is not a tag of a ${this.#format.kind}`, offset);
    if (kind === "empty" && isBelow) this.reader.refuse("an empty tree below another node", offset);
    if (kind === "stub" && !isBelow && this.#format.isPage) this.reader.refuse("a page begins with a stub", offset);
    if (++this.#nodes > this.#limits.nodes) this.reader.refuse("more nodes than the query can visit", offset);
    if (kind === "leaf" && ++this.#leaves > this.#limits.leaves)
      this.reader.refuse("more leaves than the query can visit", offset);
    const node = new Node(kind);
    node.offset = offset;
    node.floor = floor;
    if (kind === "leaf") this.#leaf(node);
    else if (kind === "inner" && base === 0) this.#inner(node);
    else if (kind === "stub") this.#stub(node);
    return node;
  }

  #leaf(node: Node): void {
    const { reader } = this;
    node.count = 1;
    if (this.#format.kind === "map") this.#key(node);
    else node.measure = reader.number("a measure", 1);
    const at = reader.at;
    node.target = reader.take(reader.varint());
    try {
      new Cid(node.target);
    } catch (error) {
      reader.refuse(`the target is not a CID: ${(error as Error).message}`, at);
    }
  }

  #key(node: Node): void {
    const { reader } = this;
    const at = reader.at;
    const length = reader.varint();
    node.end = 8 * ((node.floor >> 3) + length);
    if (node.end < node.floor || node.end > MAX_BITS) reader.refuse("a tail has the wrong length", at);
    node.label = this.#label(node, length);
    if (decodeKey(this.#path.subarray(0, node.end >> 3)) === null) reader.refuse("not a key", at);
  }

  #inner(node: Node): void {
    const { reader } = this;
    const at = reader.at;
    node.end = node.floor + reader.varint();
    if (node.end >= MAX_BITS) reader.refuse("a bit is past the longest key", at);
    node.label = this.#label(node, node.end === node.floor ? 0 : ((node.end + 7) >> 3) - (node.floor >> 3));
  }

  /** Read the bytes of a node's own bits, and write them into the path. */
  #label(node: Node, length: number): Uint8Array {
    const { reader } = this;
    const at = reader.at;
    const label = reader.take(length);
    const [first, last] = [label[0] ?? 0, label.at(-1) ?? 0];
    if ((first & ~tailMask(node.floor & 7)) !== 0 || ((node.end & 7) !== 0 && (last & tailMask(node.end & 7)) !== 0))
      reader.refuse("unused bits are not 0", at);
    node.label = label;
    writeLabel(this.#path, node);
    return label;
  }

  #stub(node: Node): void {
    const { reader } = this;
    node.count = reader.number("a count", 1);
    if (this.#format.kind === "list") node.measure = reader.number("a measure", 1);
    node.digest = reader.take(32);
    if (!this.#format.isPage) return;
    node.path = this.#format.kind === "map" ? cutLabel(this.#path, 0, node.floor) : EMPTY;
    for (const [what, limit] of [
      ["height", MAX_HEIGHT],
      ["weight", MAX_WEIGHT],
      ["extent", MAX_EXTENT],
    ] as const) {
      const at = reader.at;
      if (reader.varint() >= limit) reader.refuse(`${what} is not below ${limit}`, at);
    }
  }
}

/** Whether `bits` bits of a path are those of a label that begins at bit 0. */
export function startsWith(path: Uint8Array, label: Uint8Array, bits: number): boolean {
  if (label.length * 8 < bits) return false;
  const own = cutLabel(concat(label, Uint8Array.of(0)), 0, bits);
  return own.every((byte, i) => byte === path[i]);
}
