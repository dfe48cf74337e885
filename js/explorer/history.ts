/** The views of diffs and of published names. */

import { parseRoot } from "../src/cid.ts";
import { type Diff, verifyDiff } from "../src/verify.ts";
import { derivation } from "./derivation.ts";
import { h, plural, short } from "./dom.ts";
import type { View } from "./ledger.ts";
import { hashOf } from "./place.ts";
import type { PublishedRecord } from "./source.ts";

const PAGE_ENTRIES = 200;

/** Show the differences between two maps. */
export async function showDiff(view: View, a: string, b: string): Promise<void> {
  const roots = { a, b };
  const rows = h("tbody");
  const rest = h("div");
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
      ...(more ? [h("button", { type: "button", click: () => void page() }, "Show more")] : []),
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
    h("td", {}, segments.join("/")),
    target(before),
    target(after),
  );
}

/** Show the history of a name, and which of its claims hold together. The records are what the operator says. */
export async function showName(view: View, scope: string, name: string): Promise<void> {
  view.main.append(h("h2", {}, `${scope}/${name}`));
  const place = h("div");
  view.main.append(place);
  const load = async (token: string): Promise<void> => {
    const records = await view.source.records(scope, name, token);
    place.replaceChildren(history(records));
    view.ledger.told(
      `${scope}/${name} is the root `,
      short(records.at(-1)?.root ?? "none"),
      ": only whoever serves this page says so.",
    );
  };
  if (view.source.about.kind === "static") return load("");
  const input = h("input", { id: "token", type: "password", autocomplete: "off" });
  const problem = h("p", { class: "bad", role: "alert" });
  const submit = (event: Event) => {
    event.preventDefault();
    load(input.value).catch((error: Error) => problem.replaceChildren(error.message));
  };
  place.append(
    h(
      "form",
      { submit },
      h(
        "p",
        {},
        "A gateway shows names to operators only. The token is kept in this page’s memory alone, and sent to this gateway alone.",
      ),
      h("label", { for: "token" }, "Operator’s token"),
      h("div", { class: "row" }, input, h("button", {}, "Show the history")),
      problem,
    ),
  );
}

function history(records: readonly PublishedRecord[]): HTMLElement {
  const rows = records.map((record, i) => {
    const previous = records[i - 1];
    const link = hashOf({ view: "root", root: record.root, path: [] });
    const isSame = previous === undefined || previous.root === record.root;
    return h(
      "tr",
      {},
      h("td", {}, String(record.revision)),
      h("td", {}, h("a", { href: link }, short(record.root))),
      h("td", {}, record.published_at.slice(0, 19).replace("T", " ")),
      h("td", {}, record.frozen ? "frozen" : ""),
      h(
        "td",
        {},
        isSame ? "" : h("a", { href: hashOf({ view: "diff", a: previous.root, b: record.root }) }, "what changed"),
      ),
    );
  });
  const header = h(
    "tr",
    {},
    ...["Revision", "Root", "Published", "", "Compare"].map((each) => h("th", { scope: "col" }, each || "State")),
  );
  const problems = checkHistory(records);
  return h(
    "div",
    {},
    h(
      "div",
      { class: "table", tabindex: "0", role: "region", "aria-label": "Revisions" },
      h("table", {}, h("thead", {}, header), h("tbody", {}, ...rows)),
    ),
    problems.length === 0
      ? h(
          "p",
          { class: "good" },
          records.length === 1
            ? "✓ The record is complete in itself; its history is not here."
            : "✓ The revisions follow each other, and each names the root before it. (An operator could still show others another history.)",
        )
      : h("ul", { class: "bad" }, ...problems.map((each) => h("li", {}, each))),
  );
}

/** What is inconsistent in a history. That it is consistent does not prove it: the operator could show another one. */
function checkHistory(records: readonly PublishedRecord[]): string[] {
  const problems: string[] = [];
  records.forEach((record, i) => {
    const previous = records[i - 1];
    if (previous === undefined) return;
    if (record.revision !== previous.revision + 1)
      problems.push(`revision ${record.revision} follows ${previous.revision}`);
    if (record.previous_root !== previous.root)
      problems.push(`revision ${record.revision} names another root before it`);
    if (Date.parse(record.published_at) < Date.parse(previous.published_at))
      problems.push(`revision ${record.revision} is older than the one before it`);
    if (previous.frozen) problems.push(`revision ${record.revision} was published after the name was frozen`);
  });
  return problems;
}
