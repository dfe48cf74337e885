/** Elements and ranges of a list (section 4). */

import type { Node } from "../tree/node.ts";
import type { Tree } from "../tree/pruned.ts";

/** An element's target and measure, both null if the list is shorter, and the number of elements. */
export interface Found {
  readonly target: Uint8Array | null;
  readonly measure: number | null;
  readonly length: number;
}

/** The element at an index, by a descent by counts. */
export function getElement(tree: Tree, index: number): Found {
  let node = tree.visit(tree.top);
  const length = node.count;
  if (index >= length) return { target: null, measure: null, length };
  for (let at = index; node.kind !== "leaf"; ) {
    const left = node.left as Node;
    const isLeft = at < left.count;
    if (!isLeft) at -= left.count;
    node = tree.visit(isLeft ? left : (node.right as Node));
  }
  return { target: node.target, measure: node.measure, length };
}

/** The elements whose spans intersect a range, in the unit of the measures. */
export interface Span {
  readonly segments: Uint8Array[];
  readonly sizes: number[];
  /** Where the first segment starts; null if there is none. */
  readonly offset: number | null;
  readonly length: number;
  readonly totalSize: number;
}

/** The elements that intersect `[start, end)`; without `end`, up to the total. */
export function getRange(tree: Tree, start: number, end: number | undefined): Span {
  const top = tree.visit(tree.top);
  const stop = Math.min(end ?? top.measure, top.measure);
  const span = { segments: [] as Uint8Array[], sizes: [] as number[], length: top.count, totalSize: top.measure };
  let offset: number | null = null;
  const pending = start < stop ? [{ node: top, from: 0 }] : [];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { from } = next;
    if (from >= stop || from + next.node.measure <= start) continue;
    const node = tree.visit(next.node);
    if (node.kind === "leaf") {
      offset ??= from;
      span.segments.push(node.target);
      span.sizes.push(node.measure);
    } else {
      const left = node.left as Node;
      pending.push({ node: node.right as Node, from: from + left.measure }, { node: left, from });
    }
  }
  return { ...span, offset };
}
