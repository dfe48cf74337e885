/** Listings of a map (section 4, "Listings"). */

import { bitAt, firstDifference } from "../bytes.ts";
import { decodeKey, type Window } from "../key.ts";
import { type Node, pathBuffer, writeBit, writeLabel } from "../tree/node.ts";
import type { Tree } from "../tree/pruned.ts";
import { descend } from "./map.ts";

/** Entries in the order of keys, and whether more follow. */
export interface Listing {
  readonly entries: { segments: string[]; target: Uint8Array }[];
  readonly more: boolean;
}

/** A subtree that is still to be taken. `turned`: it is a right child, whose bit the path does not have yet. */
interface Pending {
  readonly node: Node;
  readonly turned: boolean;
}

/** Whether everything below a node is before `hi` or past it, by the first `bits` bits of the path. */
function side(path: Uint8Array, bits: number, hi: Uint8Array | null): "before" | "past" | "undecided" {
  if (hi === null) return "before";
  const bit = firstDifference(path, hi, Math.min(bits, 8 * hi.length));
  if (bit >= 0) return bitAt(hi, bit) === 1 ? "before" : "past";
  return bits >= 8 * hi.length ? "past" : "undecided";
}

/** List at most `limit` entries of a window. */
export function scan(tree: Tree, window: Window, limit: number): Listing {
  const path = pathBuffer();
  const pending = seek(tree, window, path);
  const entries: Listing["entries"] = [];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (next.turned) writeBit(path, next.node.floor - 1, 1);
    for (let node = tree.visit(next.node); node.kind !== "empty"; node = tree.visit(node.left as Node)) {
      writeLabel(path, node);
      const where = side(path, node.end, window.hi);
      if (where === "past") return { entries, more: false };
      if (where === "before" && entries.length === limit) return { entries, more: true };
      if (node.kind === "leaf") {
        const segments = decodeKey(path.subarray(0, node.end >> 3)) ?? tree.refuse("not a key");
        entries.push({ segments, target: node.target });
        break;
      }
      pending.push({ node: node.right as Node, turned: true });
      writeBit(path, node.end, 0);
    }
  }
  return { entries, more: false };
}

/** The subtrees of the window, the first one last; the path is that of `lo`. */
function seek(tree: Tree, { lo, isAfter }: Window, path: Uint8Array): Pending[] {
  if (lo === null) return [{ node: tree.top, turned: false }];
  const pending: Pending[] = [];
  path.set(lo);
  const { node, bit } = descend(tree, lo, (inner, taken) => {
    if (taken === 0) pending.push({ node: inner.right as Node, turned: true });
  });
  const isNext = bit < 0 ? !isAfter : node.kind !== "empty" && bitAt(lo, bit) === 0;
  if (isNext) pending.push({ node, turned: false });
  return pending;
}
