/**
 * Queries on the pages of a static tree (section 8), and the proofs of their answers. Sans I/O: a query says which
 * pages it needs, the caller fetches them, and the query runs again.
 */

import { concat, EMPTY, equal, firstDifference, join, varint } from "./bytes.ts";
import { type CidLike, parseRoot, type Root } from "./cid.ts";
import { ProofError } from "./errors.ts";
import { encodeKey, type Path, windowOf } from "./key.ts";
import { diff } from "./query/diff.ts";
import { getElement, getRange } from "./query/list.ts";
import { get } from "./query/map.ts";
import { scan } from "./query/scan.ts";
import { cutLabel, type Node, pathBuffer, writeLabel } from "./tree/node.ts";
import { NO_LIMITS, parseTree } from "./tree/parse.ts";
import { nodesOf, Tree } from "./tree/pruned.ts";
import type { WindowOptions } from "./verify.ts";

/** The longest page, in bytes. */
export const MAX_PAGE = 16_642;

/** A source of pages, such as files below a URL. */
export interface PageSource {
  /** The page that begins with the top node of a root, or null if the root is not held. At most `MAX_PAGE` bytes. */
  root(root: string): Promise<Uint8Array | null>;
  /** The page with this digest, 32 bytes. */
  page(digest: Uint8Array): Promise<Uint8Array>;
}

/** Thrown by a query that meets a stub whose page was not fetched. */
class MissingPage extends Error {
  readonly stub: Node;

  constructor(stub: Node) {
    super("a page is missing");
    this.stub = stub;
  }
}

/** A map or list that is read from pages, each compared with its digest before use. */
export class PagedTree {
  readonly root: Root;
  readonly #source: PageSource;
  readonly #top: Node;

  private constructor(root: Root, source: PageSource, top: Node) {
    this.root = root;
    this.#source = source;
    this.#top = top;
  }

  /**
   * Open the tree of a root. Null if the source does not hold it, which proves nothing.
   * @throws ProofError if the page is malformed or does not have the root's digest.
   */
  static async open(cid: CidLike, source: PageSource): Promise<PagedTree | null> {
    const root = parseRoot(cid);
    const page = await source.root(root.cid.text);
    return page === null ? null : new PagedTree(root, source, parsePage(root, root.cid.digest, page));
  }

  /** The proof of one key. `verifyKey` accepts it. */
  proveKey(path: Path): Promise<Uint8Array> {
    const key = encodeKey(path);
    return this.#prove((tree) => get(tree, key));
  }

  /** The proof of one element. `verifyIndex` accepts it. */
  proveIndex(index: number): Promise<Uint8Array> {
    return this.#prove((tree) => getElement(tree, index));
  }

  /** The proof of a range. `verifyRange` accepts it. */
  proveRange(start: number, end?: number): Promise<Uint8Array> {
    return this.#prove((tree) => getRange(tree, start, end));
  }

  /** The proof of a listing. `verifyScan` accepts it. */
  proveScan({ prefix = [], after, limit }: WindowOptions): Promise<Uint8Array> {
    const window = windowOf(prefix, after);
    return this.#prove((tree) => scan(tree, window, limit));
  }

  /** The two proofs of a diff with another map. `verifyDiff` accepts them. */
  async proveDiff(other: PagedTree, { prefix = [], after, limit }: WindowOptions) {
    const window = windowOf(prefix, after);
    const [a, b] = await runOnPages([this, other], (first, second) =>
      diff(first as Tree, second as Tree, window, limit),
    );
    return { a: a as Uint8Array, b: b as Uint8Array };
  }

  async #prove(query: (tree: Tree) => unknown): Promise<Uint8Array> {
    const [proof] = await runOnPages([this], (tree) => query(tree as Tree));
    return proof as Uint8Array;
  }

  /** A tree for one run of a query. Nothing is visited yet. */
  start(): Tree {
    for (const { node } of shownNodes(this.#top)) node.isVisited = false;
    return new Tree(this.root, this.#top, (stub) => {
      if (stub.page === null) throw new MissingPage(stub);
      return stub.page;
    });
  }

  /** Fetch the page of a stub, and put it in its place. */
  async load(stub: Node): Promise<void> {
    const digest = stub.digest as Uint8Array;
    const top = parsePage(this.root, digest, await this.#source.page(digest));
    if (top.count !== stub.count || top.measure !== stub.measure)
      throw new ProofError("a page has another count or measure than its stub");
    if (this.root.kind === "map") attach(top, stub);
    stub.page = top;
  }

  encode(): Uint8Array {
    return encodeProof(this.#top, this.root.kind);
  }
}

async function runOnPages(trees: readonly PagedTree[], query: (...trees: Tree[]) => unknown): Promise<Uint8Array[]> {
  for (;;) {
    const started = trees.map((tree) => tree.start());
    for (const tree of started) tree.visit(tree.top);
    try {
      query(...started);
      return trees.map((tree) => tree.encode());
    } catch (error) {
      if (!(error instanceof MissingPage)) throw error;
      const { stub } = error;
      const owner = trees.find((tree) => [...shownNodes(tree.start().top)].some(({ node }) => node === stub));
      await (owner as PagedTree).load(stub);
    }
  }
}

function parsePage(root: Root, digest: Uint8Array, page: Uint8Array): Node {
  if (page.length > MAX_PAGE) throw new ProofError(`a page of ${page.length} bytes is over the limit of ${MAX_PAGE}`);
  const top = parseTree(page, { kind: root.kind, suite: root.suite, isPage: true }, NO_LIMITS);
  if (!equal(top.digest as Uint8Array, digest)) throw new ProofError("a page does not have the digest in its name");
  return top;
}

/** Give the top node of a page, which shows all its bits, the floor of the stub whose place it takes. */
function attach(top: Node, stub: Node): void {
  const path = pathBuffer();
  writeLabel(path, top);
  const agrees = top.end >= stub.floor && firstDifference(path, padded(stub.path), stub.floor) < 0;
  if (!agrees) throw new ProofError("a page's own bits do not continue the path to its stub");
  top.label = cutLabel(path, stub.floor, top.end);
  top.floor = stub.floor;
}

function padded(path: Uint8Array): Uint8Array {
  const buffer = pathBuffer();
  buffer.set(path);
  return buffer;
}

/** The nodes below a top node, with the pages in place of their stubs. Stubs with pages are followed, not returned. */
function* shownNodes(top: Node): Generator<{ node: Node }> {
  for (const { node } of nodesOf(top)) {
    yield { node };
    if (node.page !== null) yield* shownNodes(node.page);
  }
}

/** The proof that shows the visited nodes of a tree (section 4). */
function encodeProof(top: Node, kind: "map" | "list"): Uint8Array {
  const parts: Uint8Array[] = [];
  const pending = [top];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const node = next.page?.isVisited ? next.page : next;
    parts.push(encodeShown(node, kind));
    if (node.isVisited && node.kind === "inner") pending.push(node.right as Node, node.left as Node);
  }
  return join(parts);
}

function encodeShown(node: Node, kind: "map" | "list"): Uint8Array {
  const [isMap, base] = [kind === "map", kind === "map" ? 0x00 : 0x10];
  if (!node.isVisited || node.kind === "stub") {
    const measure = isMap ? EMPTY : varint(node.measure);
    return concat(Uint8Array.of(base | 3), varint(node.count), measure, node.digest as Uint8Array);
  }
  if (node.kind === "empty") return Uint8Array.of(base);
  if (node.kind === "inner")
    return concat(Uint8Array.of(base | 2), ...(isMap ? [varint(node.end - node.floor), node.label] : []));
  const own = isMap ? [varint((node.end >> 3) - (node.floor >> 3)), node.label] : [varint(node.measure)];
  return concat(Uint8Array.of(base | 1), ...own, varint(node.target.length), node.target);
}
