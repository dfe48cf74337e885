/** The differences between two maps (section 4, "Diff"). */

import { bitAt, equal, firstDifference } from "../bytes.ts";
import { decodeKey, type Window } from "../key.ts";
import { type Node, pathBuffer, writeBit, writeLabel } from "../tree/node.ts";
import type { Tree } from "../tree/pruned.ts";

export interface Difference {
  readonly segments: string[];
  readonly before: Uint8Array | null;
  readonly after: Uint8Array | null;
}

export interface Differences {
  readonly entries: Difference[];
  readonly more: boolean;
}

/** A subtree of one of the two maps. `turn` is its parent's side of it, if the path of its map must still take it. */
interface Subtree {
  readonly side: 0 | 1;
  readonly node: Node;
  readonly turn?: 0 | 1;
}

type Pair = readonly Subtree[];
type Place = "outside" | "inside" | "undecided";

/** Compare a subtree with a window by the first `bits` bits of its path. `leaf`: they are a whole key. */
function place(path: Uint8Array, bits: number, isLeaf: boolean, { lo, hi, isAfter }: Window): Place {
  let isInside = true;
  if (lo !== null) {
    const bit = firstDifference(path, lo, Math.min(bits, 8 * lo.length));
    if (bit >= 0 && bitAt(lo, bit) === 1) return "outside";
    const isLeafOfLo = isLeaf && bit < 0 && bits === 8 * lo.length;
    if (isLeafOfLo && isAfter) return "outside";
    isInside = bit >= 0 || isLeafOfLo;
  }
  if (hi !== null) {
    const bit = firstDifference(path, hi, Math.min(bits, 8 * hi.length));
    if (bit >= 0 ? bitAt(hi, bit) === 0 : bits >= 8 * hi.length) return "outside";
    isInside &&= bit >= 0;
  }
  return isInside ? "inside" : "undecided";
}

class Traversal {
  readonly #trees: readonly [Tree, Tree];
  readonly #window: Window;
  readonly #limit: number;
  readonly #paths = [pathBuffer(), pathBuffer()] as const;
  readonly #pending: Pair[];
  readonly entries: Difference[] = [];

  constructor(trees: readonly [Tree, Tree], window: Window, limit: number) {
    this.#trees = trees;
    this.#window = window;
    this.#limit = limit;
    this.#pending = [([0, 1] as const).map((side) => ({ side, node: trees[side].visit(trees[side].top) }))];
  }

  /** Take every pair. Returns whether more differences follow. */
  run(): boolean {
    for (let pair = this.#pending.pop(); pair !== undefined; pair = this.#pending.pop()) {
      const [a, b] = pair;
      if (a !== undefined && b !== undefined && equal(a.node.digest as Uint8Array, b.node.digest as Uint8Array))
        continue;
      for (const { side, node, turn } of pair)
        if (turn !== undefined) writeBit(this.#paths[side], node.floor - 1, turn);
      const remaining = this.#compare(pair, ({ node }) => node.floor, false);
      if (remaining === null) return true;
      const visited = remaining
        .map(({ side, node }) => ({ side, node: this.#trees[side].visit(node) }))
        .filter(({ node }) => node.kind !== "empty");
      for (const { side, node } of visited) writeLabel(this.#paths[side], node);
      const inside = this.#compare(visited, ({ node }) => node.end, true);
      if (inside === null) return true;
      this.#divide(inside);
    }
    return false;
  }

  /** Drop the subtrees outside the window. Returns null if the limit is reached and a difference follows. */
  #compare(pair: Pair, bits: (subtree: Subtree) => number, isShown: boolean): Pair | null {
    const places = pair.map((each) =>
      place(this.#paths[each.side], bits(each), isShown && each.node.kind === "leaf", this.#window),
    );
    if (this.entries.length === this.#limit && pair.length > 0 && places.every((each) => each === "inside"))
      return null;
    return pair.filter((_, i) => places[i] !== "outside");
  }

  #divide(pair: Pair): void {
    const [a, b] = pair;
    if (a === undefined) return;
    if (b === undefined) {
      if (a.node.kind === "leaf") this.#report(pair);
      else this.#push([child(a, 0)], [child(a, 1)]);
      return;
    }
    const [bitsA, bitsB] = [a.node.end, b.node.end];
    const bit = firstDifference(this.#paths[a.side], this.#paths[b.side], Math.min(bitsA, bitsB));
    if (bit >= 0) {
      const first = bitAt(this.#paths[a.side], bit);
      this.#push([first === 0 ? a : b], [first === 0 ? b : a]);
    } else if (bitsA === bitsB && a.node.kind === b.node.kind) {
      if (a.node.kind === "leaf") this.#report(pair);
      else this.#push([child(a, 0), child(b, 0)], [child(a, 1), child(b, 1)]);
    } else {
      const [x, y] = bitsA < bitsB ? [a, b] : [b, a];
      if (bitsA === bitsB || x.node.kind === "leaf")
        this.#trees[0].refuse("two trees that have no keys in common places");
      const side = bitAt(this.#paths[y.side], x.node.end);
      const paired = [child(x, side), y].sort((one, other) => one.side - other.side);
      this.#push(...(side === 0 ? [paired, [child(x, 1)]] : [[child(x, 0)], paired]));
    }
  }

  /** Put pairs before all pending ones, in this order. */
  #push(...pairs: Pair[]): void {
    this.#pending.push(...pairs.reverse());
  }

  #report(pair: Pair): void {
    const { side, node } = pair[0] as Subtree;
    const segments = decodeKey(this.#paths[side].subarray(0, node.end >> 3)) ?? this.#trees[side].refuse("not a key");
    const target = (wanted: 0 | 1) => pair.find((each) => each.side === wanted)?.node.target ?? null;
    this.entries.push({ segments, before: target(0), after: target(1) });
  }
}

function child(subtree: Subtree, turn: 0 | 1): Subtree {
  return { side: subtree.side, node: (turn === 0 ? subtree.node.left : subtree.node.right) as Node, turn };
}

/** At most `limit` differences between two maps in a window. */
export function diff(a: Tree, b: Tree, window: Window, limit: number): Differences {
  const traversal = new Traversal([a, b], window, limit);
  const more = traversal.run();
  return { entries: traversal.entries, more };
}
