/** A pruned tree that a query runs on, and the check that nothing was shown in vain (section 4). */

import { equal } from "../bytes.ts";
import type { Root } from "../cid.ts";
import { ProofError } from "../errors.ts";
import type { Node } from "./node.ts";
import { parseTree, type VisitLimits } from "./parse.ts";

/** The longest proof of one key or index, in bytes. */
export const MAX_KEY_PROOF = 2_892_588;

/** The longest proof of anything else, in bytes. */
export const MAX_PROOF = 16 * 2 ** 20;

/** A tree as queries see it: nodes are visited, from the top node down. */
export class Tree {
  readonly root: Root;
  top: Node;
  /** Called for a stub that the query needs. Returns the node in its place, or throws. */
  readonly #replace: (stub: Node) => Node;

  constructor(root: Root, top: Node, replace: (stub: Node) => Node) {
    this.root = root;
    this.top = top;
    this.#replace = replace;
  }

  /** Visit a node: from here on it counts as needed. Returns it, or what stands in the place of a stub. */
  visit(node: Node): Node {
    const found = node.kind === "stub" ? this.#replace(node) : node;
    found.isVisited = true;
    return found;
  }

  /** Refuse a tree in which no descent ends. */
  refuse(message: string): never {
    throw new ProofError(message);
  }
}

function refuseStub(stub: Node): never {
  throw new ProofError(`the query needs a node that is pruned at byte ${stub.offset}`);
}

/** The nodes below and including `top`, parents first, left before right. */
export function* nodesOf(top: Node): Generator<{ node: Node; depth: number }> {
  const pending = [{ node: top, depth: 0 }];
  for (let each = pending.pop(); each !== undefined; each = pending.pop()) {
    yield each;
    const { left, right } = each.node;
    if (right !== null) pending.push({ node: right, depth: each.depth + 1 });
    if (left !== null) pending.push({ node: left, depth: each.depth + 1 });
  }
}

/** What the proof of an answer can have, at most. */
export interface ProofLimits extends VisitLimits {
  readonly bytes: number;
}

/** Parse a proof whose top node has the digest of the root. */
export function openProof(root: Root, proof: Uint8Array, limits: ProofLimits): Tree {
  if (proof.length > limits.bytes)
    throw new ProofError(`a proof of ${proof.length} bytes is over the limit of ${limits.bytes}`);
  const top = parseTree(proof, { kind: root.kind, suite: root.suite, isPage: false }, limits);
  if (!equal(top.digest as Uint8Array, root.cid.digest))
    throw new ProofError("the proof does not have the root's digest");
  return new Tree(root, top, refuseStub);
}

/**
 * Run a query on proofs, one for each root, and return its answer if every shown node was visited.
 * @throws ProofError if a proof is not the proof of this query.
 */
export function verifyQuery<T>(
  proofs: readonly { root: Root; proof: Uint8Array }[],
  limits: ProofLimits,
  query: (...trees: Tree[]) => T,
): T {
  const trees = proofs.map(({ root, proof }) => openProof(root, proof, limits));
  const shown = trees.flatMap((tree) => [...nodesOf(tree.top)].filter(({ node }) => node.kind !== "stub"));
  for (const tree of trees) tree.visit(tree.top);
  const answer = query(...trees);
  const spare = shown.find(({ node }) => !node.isVisited);
  if (spare !== undefined) throw new ProofError("the proof shows more than the query needs", spare.node.offset);
  return answer;
}
