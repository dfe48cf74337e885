/** A proof, drawn: its nodes, what was hashed at each, in order, and what becomes of it if a byte is changed. */

import { toHex } from "../src/bytes.ts";
import type { Root } from "../src/cid.ts";
import { Cid } from "../src/cid.ts";
import { CoregwError } from "../src/errors.ts";
import { decodeKey } from "../src/key.ts";
import { encodeNode, type Node, pathBuffer, writeBit, writeLabel } from "../src/tree/node.ts";
import { NO_LIMITS } from "../src/tree/parse.ts";
import { MAX_PROOF, openProof } from "../src/tree/pruned.ts";
import { bytesText, h, pathText, plural, short } from "./dom.ts";

const MAX_DRAWN = 600;
/** What the button that tries every byte may hash: verifiers run in the page's only thread. */
const MAX_TAMPERED_BYTES = 16 * 2 ** 20;

interface Drawn {
  readonly node: Node;
  readonly depth: number;
  readonly title: string;
  /** What the digest is computed from; null for a pruned subtree. */
  readonly hashed: Uint8Array | null;
}

/** The nodes of a proof, parents first. */
function nodesOfProof(root: Root, proof: Uint8Array): { nodes: Drawn[]; total: number } {
  const { top } = openProof(root, proof, { ...NO_LIMITS, bytes: MAX_PROOF });
  const path = pathBuffer();
  const nodes: Drawn[] = [];
  let total = 0;
  const pending: { node: Node; depth: number; bit: 0 | 1 | null }[] = [{ node: top, depth: 0, bit: null }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { node, depth, bit } = next;
    total++;
    if (root.kind === "map") {
      if (bit !== null) writeBit(path, node.floor - 1, bit);
      writeLabel(path, node);
    }
    if (nodes.length < MAX_DRAWN) {
      const hashed = node.kind === "stub" ? null : encodeNode(root.kind, node, path);
      nodes.push({ node, depth, title: titleOf(root, node, path), hashed });
    }
    if (node.right !== null) pending.push({ node: node.right, depth: depth + 1, bit: 1 });
    if (node.left !== null) pending.push({ node: node.left, depth: depth + 1, bit: 0 });
  }
  return { nodes, total };
}

function titleOf(root: Root, node: Node, path: Uint8Array): string {
  const size = root.kind === "list" ? `, ${node.measure.toLocaleString("en")} in size` : "";
  switch (node.kind) {
    case "empty":
      return `empty ${root.kind}`;
    case "leaf": {
      const key = root.kind === "map" ? pathText(decodeKey(path.subarray(0, node.end >> 3)) ?? []) : "element";
      return `${key} → ${shortCid(node.target)}${size}`;
    }
    case "inner":
      return `${root.kind === "map" ? `branch at bit ${node.end}` : "branch"}, ${plural(node.count, "leaf").replace("leafs", "leaves")}${size}`;
    case "stub":
      return `pruned, ${plural(node.count, "leaf").replace("leafs", "leaves")}${size}`;
  }
}

function shortCid(target: Uint8Array): string {
  const { text } = new Cid(target);
  return text.length > 20 ? `${text.slice(0, 10)}…${text.slice(-6)}` : text;
}

/** The section of a proof: summary, drawing with steps, and tampering. `verify` accepts the proof, or throws. */
export function derivation(root: Root, proof: Uint8Array, verify: (proof: Uint8Array) => unknown): HTMLElement {
  const { nodes, total } = nodesOfProof(root, proof);
  const pruned = nodes.filter(({ hashed }) => hashed === null).length;
  const summary = `${bytesText(proof.length)} of proof: ${plural(total - pruned, "visited node")}, ${plural(pruned, "pruned subtree")}`;
  const body = h("div", { class: "derivation" });
  const details = h(
    "details",
    { class: "proof" },
    h("summary", {}, `How this follows from the root (${summary})`),
    body,
  );
  const draw = () => {
    if (details.open && body.childElementCount === 0)
      body.append(drawing(root, nodes, total), tampering(proof, verify, nodes));
  };
  details.addEventListener("toggle", draw);
  return details;
}

function drawing(root: Root, nodes: readonly Drawn[], total: number): HTMLElement {
  const rows = nodes.map((drawn) => row(drawn));
  const tree = h("ol", { class: "nodes", "aria-label": "Nodes of the proof, each below its parent" }, ...rows);
  const steps = nodes.map((_, i) => i).filter((i) => nodes[i]?.hashed !== null);
  steps.reverse();
  return h(
    "div",
    {},
    h(
      "p",
      {},
      "Every visited node is hashed, children first. The pruned subtrees' digests are in the proof. ",
      "If the last digest is the root's, then all of this is what the root's maker wrote.",
    ),
    total > nodes.length && h("p", {}, `Only the first ${nodes.length} of ${total} nodes are drawn.`),
    tree,
    stepper(root, nodes, rows, steps),
  );
}

function row({ node, depth, title, hashed }: Drawn): HTMLElement {
  const digest = toHex(node.digest as Uint8Array);
  const item = h(
    "li",
    { class: node.kind },
    h("span", { class: "kind" }, hashed === null ? "▢ " : "● "),
    h("span", { class: "title" }, title),
    " ",
    short(digest),
    hashed === null ? null : ` of ${bytesText(hashed.length)}`,
  );
  item.dataset["depth"] = String(Math.min(depth, 40));
  item.style.setProperty("--depth", String(Math.min(depth, 40)));
  return item;
}

/** Buttons that go through the hashes one by one. */
function stepper(
  root: Root,
  nodes: readonly Drawn[],
  rows: readonly HTMLElement[],
  steps: readonly number[],
): HTMLElement {
  let at = -1;
  const output = h("div", { class: "step", role: "status" }, `${plural(steps.length, "step")}: press “Next step”.`);
  const show = (next: number) => {
    at = Math.max(0, Math.min(steps.length - 1, next));
    const i = steps[at] as number;
    const { node, hashed, title } = nodes[i] as Drawn;
    for (const [j, each] of rows.entries()) {
      each.classList.toggle("current", j === i);
      each.classList.toggle("done", steps.slice(0, at + 1).includes(j));
    }
    rows[i]?.scrollIntoView({ block: "nearest" });
    const digest = toHex(node.digest as Uint8Array);
    const isLast = at === steps.length - 1;
    output.replaceChildren(
      h("p", {}, `Step ${at + 1} of ${steps.length}: ${title}`),
      h(
        "p",
        {},
        `${root.suite.name} of `,
        h("code", { class: "bytes" }, toHex(hashed as Uint8Array)),
        ` (${(hashed as Uint8Array).length} bytes)`,
      ),
      h("p", {}, "= ", h("code", { class: "bytes" }, digest)),
      ...(isLast
        ? [
            h(
              "p",
              { class: "good" },
              digest === toHex(root.cid.digest)
                ? "✓ This is the digest in the root’s CID."
                : "✗ Not the root’s digest.",
            ),
          ]
        : []),
    );
  };
  const button = (text: string, act: () => void) => h("button", { type: "button", click: act }, text);
  return h(
    "div",
    { class: "stepper" },
    h(
      "div",
      { class: "row" },
      button("Previous step", () => show(at - 1)),
      button("Next step", () => show(at + 1)),
      button("Last step", () => show(steps.length - 1)),
    ),
    output,
  );
}

/** Flip a bit of the real proof, and show what the verifier says. */
function tampering(proof: Uint8Array, verify: (proof: Uint8Array) => unknown, nodes: readonly Drawn[]): HTMLElement {
  const output = h("div", { role: "status", class: "step" });
  const input = h("input", {
    type: "number",
    min: "0",
    max: String(proof.length - 1),
    value: "0",
    "aria-label": "Byte of the proof",
  });
  const flip = (at: number): string => {
    const forged = proof.slice();
    forged[at] = (forged[at] as number) ^ 1;
    try {
      verify(forged);
      return "";
    } catch (error) {
      if (!(error instanceof CoregwError)) throw error;
      return error.message;
    }
  };
  const one = (at: number) => {
    input.value = String(at);
    const [old, refusal] = [proof[at] as number, flip(at)];
    const owner = nodes.findLast(({ node }) => node.offset <= at);
    const hex = (byte: number) => byte.toString(16).padStart(2, "0");
    output.replaceChildren(
      h("p", {}, `Byte ${at}, in “${owner?.title}”: ${hex(old)} became ${hex(old ^ 1)}.`),
      h(
        "p",
        { class: refusal === "" ? "bad" : "good" },
        refusal === "" ? "Accepted. This must not happen." : `✓ Rejected: ${refusal}`,
      ),
    );
  };
  const every = () => {
    const tried = Math.min(proof.length, 2000, Math.ceil(MAX_TAMPERED_BYTES / proof.length));
    const accepted = Array.from({ length: tried }, (_, at) => flip(at)).filter((refusal) => refusal === "").length;
    output.replaceChildren(
      h(
        "p",
        { class: accepted === 0 ? "good" : "bad" },
        `${plural(tried, "byte")} changed, one at a time: ${tried - accepted} rejected, ${accepted} accepted.` +
          (tried < proof.length
            ? ` (Of ${proof.length.toLocaleString("en")}; all of them would take too long here.)`
            : ""),
      ),
    );
  };
  const chosen = () => Math.max(0, Math.min(proof.length - 1, Math.floor(Number(input.value)) || 0));
  return h(
    "div",
    { class: "tamper" },
    h("h3", {}, "Tamper with this proof"),
    h(
      "div",
      { class: "row" },
      input,
      h("button", { type: "button", click: () => one(chosen()) }, "Flip a bit of this byte"),
      h("button", { type: "button", click: () => one(Math.floor(Math.random() * proof.length)) }, "Tamper anywhere"),
      h("button", { type: "button", click: every }, "Every byte"),
    ),
    output,
  );
}
