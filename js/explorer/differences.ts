/** The view of a diff of two maps. */

import { Cid, parseRoot } from "../src/cid.ts";
import { type Diff, verifyDiff } from "../src/verify.ts";
import { derivation } from "./derivation.ts";
import { asking, h, pathText, plural, short } from "./dom.ts";
import type { View } from "./ledger.ts";

const PAGE_ENTRIES = 200;

/** Show the differences between two maps. */
export async function showDiff(view: View, first: string, second: string): Promise<void> {
  const [a, b] = [new Cid(first).text, new Cid(second).text]; // as typed, they might be any path of this server
  const roots = { a, b };
  const rows = h("tbody");
  const rest = h("div");
  const failed = h("div", { role: "status" });
  let [after, count] = [null as readonly string[] | null, 0];
  const page = async (): Promise<void> => {
    const options = { limit: PAGE_ENTRIES, ...(after === null ? {} : { after }) };
    const proofs = await view.source.proveDiff(a, b, options);
    const { entries, more } = verifyDiff(roots, options, proofs);
    rows.append(...entries.map(differenceRow));
    [after, count] = [entries.at(-1)?.segments ?? null, count + entries.length];
    view.ledger.verified(
      `${plural(count, "difference")}${more ? " so far, without a gap" : ": all there are"} (diff proof).`,
    );
    rest.replaceChildren(
      ...(more ? [asking("Show more", failed, page)] : []),
      failed,
      h("p", {}, "Nodes of the first map that the comparison visited:"),
      derivation(parseRoot(a), proofs.a, (bytes) => verifyDiff(roots, options, { ...proofs, a: bytes })),
      h("p", {}, "Nodes of the second map:"),
      derivation(parseRoot(b), proofs.b, (bytes) => verifyDiff(roots, options, { ...proofs, b: bytes })),
    );
  };
  await page();
  const header = h("tr", {}, ...["Change", "Path", "Before", "After"].map((each) => h("th", { scope: "col" }, each)));
  view.main.append(
    h("h2", {}, "Differences"),
    h(
      "p",
      {},
      "From ",
      short(a),
      " to ",
      short(b),
      ": ",
      count === 0 ? "none; the two maps are the same." : `${plural(count, "difference")}.`,
    ),
    h(
      "div",
      { class: "table", tabindex: "0", role: "region", "aria-label": "Differences" },
      h("table", {}, h("thead", {}, header), rows),
    ),
    rest,
  );
}

function differenceRow({ segments, before, after }: Diff["entries"][number]): HTMLElement {
  const [mark, word] = before === null ? ["+", "added"] : after === null ? ["−", "removed"] : ["±", "changed"];
  const target = (cid: string | null) => h("td", {}, cid === null ? "" : short(cid));
  return h(
    "tr",
    { class: word },
    h("td", {}, `${mark} ${word}`),
    h("td", {}, h("span", { class: "name" }, pathText(segments))),
    target(before),
    target(after),
  );
}
