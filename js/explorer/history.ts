/** The view of a published name: its history, and its verification against a policy. */

import {
  type Checkpoint,
  microseconds,
  Policy,
  type PublishedRecord,
  parseNote,
  readCheckpoint,
  verifyHistory,
} from "../src/publications.ts";
import { h, plural, short, visible } from "./dom.ts";
import type { View } from "./ledger.ts";
import { hashOf, keep, recall } from "./place.ts";

/** Show the history of a name. If its operator signs it, a policy of the reader's verifies it; otherwise it is hearsay. */
export async function showName(view: View, scope: string, name: string): Promise<void> {
  const place = h("div");
  view.main.append(h("h2", {}, `${scope}/${name}`), place);
  const found = await view.source.published(scope, name);
  if (found !== null && found.note !== null)
    return showSigned(view, place, { scope, name, note: found.note, records: found.records });
  if (recall(policyKey(scope, name)) !== null) {
    const gone =
      "This browser has verified a signed history of this name. What serves this page has none now: do not trust what it says of the name.";
    view.ledger.told("That this name is not signed.");
    place.append(h("p", { class: "bad", role: "alert" }, gone));
    return;
  }
  if (found === null) {
    place.append(h("p", { class: "bad", role: "alert" }, "What serves this page has nothing under this name."));
    return;
  }
  place.append(table(found.records), consistency(found.records));
  const claim = told(view, scope, name, found.records);
  if (view.source.about.kind === "static") return;
  const load = async (token: string): Promise<void> => {
    const records = await view.source.unsignedHistory(scope, name, token);
    place.replaceChildren(table(records), consistency(records));
    claim.remove();
    told(view, scope, name, records);
  };
  place.append(tokenForm(load));
}

function told({ ledger }: View, scope: string, name: string, records: readonly PublishedRecord[]): HTMLElement {
  const root = short(records.at(-1)?.root ?? "none");
  return ledger.told(`${scope}/${name} is the root `, root, ": only whoever serves this page says so.");
}

function tokenForm(load: (token: string) => Promise<void>): HTMLElement {
  const input = h("input", { id: "token", type: "password", autocomplete: "off" });
  const problem = h("p", { class: "bad", role: "alert" });
  const submit = (event: Event) => {
    event.preventDefault();
    load(input.value).catch((error: Error) => problem.replaceChildren(error.message));
  };
  return h(
    "form",
    { submit },
    h(
      "p",
      {},
      "This name is not signed, and a gateway shows the history of such a name to its operator only, where it serves the administration. The token is kept in this page’s memory alone, and sent to this gateway alone.",
    ),
    h("label", { for: "token" }, "Operator’s token"),
    h("div", { class: "row" }, input, h("button", {}, "Show the history")),
    problem,
  );
}

interface Signed {
  readonly scope: string;
  readonly name: string;
  readonly note: string;
  readonly records: readonly PublishedRecord[];
}

function showSigned(view: View, place: HTMLElement, signed: Signed): void {
  const { scope, name, records } = signed;
  const result = h("div", { id: "signed", "aria-live": "polite" });
  const input = h("textarea", { id: "policy", rows: "4", spellcheck: "false", autocomplete: "off", required: true });
  const problem = h("p", { class: "bad", role: "alert" });
  let claims = [told(view, scope, name, records)];
  const verify = (): void => {
    for (const claim of claims) claim.remove(); // what the last attempt said of the name
    claims = [told(view, scope, name, records)];
    try {
      const { facts, entries } = verifySigned(view, signed, input.value.trim());
      for (const claim of claims) claim.remove();
      claims = entries;
      result.replaceChildren(h("ul", {}, ...facts.map((fact) => h("li", {}, fact))));
      problem.replaceChildren();
    } catch (error) {
      result.replaceChildren();
      problem.replaceChildren(`Not verified: ${(error as Error).message}`);
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    verify();
  };
  const form = h(
    "form",
    { submit },
    h("label", { for: "policy" }, "Key of the log (vkey), or a policy with its witnesses, from the operator"),
    input,
    h("button", {}, "Verify the history"),
    problem,
  );
  place.append(table(records), consistency(records), h("h3", {}, "Signatures"), form, result);
  const kept = recall(policyKey(scope, name));
  if (kept === null) return;
  input.value = kept;
  verify();
}

/** Verify a signed history by a policy, and by what this browser verified before. Then both are kept. */
function verifySigned({ ledger }: View, { scope, name, note: text, records }: Signed, given: string) {
  const policy = new Policy(/^\S+$/.test(given) ? `log ${given}\nquorum none` : given);
  const note = parseNote(text);
  const checkpoint = policy.verify(note);
  const before = lastCheckpoint(checkpoint.origin);
  verifyHistory(scope, name, records, checkpoint, before);
  keep(policyKey(scope, name), given);
  keep(checkpointKey(checkpoint.origin), text);
  const newest = records.at(-1);
  const witnesses = policy.cosigners(note);
  const entry = ledger.verified(
    `Revision ${records.length} of ${scope}/${name} is the root `,
    short(newest?.root ?? "none"),
    `${newest?.frozen ? ", frozen" : ""}: signed by ${visible(checkpoint.origin)}.`,
  );
  const newer = newest?.frozen ? null : ledger.told("That there is no newer revision.");
  const facts = [
    `${visible(checkpoint.origin)} signed a log of ${plural(checkpoint.size, "entry", "entries")}; they are exactly the revisions above${newest?.frozen ? ", and the freeze" : ""}.`,
    witnesses.length === 0
      ? "No witness of your policy cosigned it: others might be shown another history."
      : `Cosigned by ${witnesses.map(({ name: who, seconds }) => `${visible(who)} at ${timeText(seconds * 1_000_000n)}`).join(", ")}.`,
    before === undefined
      ? "This browser had not verified this log before."
      : `It continues the ${plural(before.size, "entry", "entries")} that this browser verified before.`,
  ];
  return { facts, entries: newer === null ? [entry] : [entry, newer] };
}

/** A time in microseconds since 1970, in UTC. */
function timeText(since: bigint): string {
  const date = new Date(Number(since / 1000n));
  if (Number.isNaN(date.getTime())) return `${since / 1_000_000n} seconds after 1970`; // cosigners may say any
  return `${date.toISOString().replace(/T(.{8}).*/, " $1")} UTC`;
}

const policyKey = (scope: string, name: string) => `coregw policy ${scope}/${name}`;
const checkpointKey = (origin: string) => `coregw checkpoint ${origin}`;

function lastCheckpoint(origin: string): Checkpoint | undefined {
  const note = recall(checkpointKey(origin));
  return note === null ? undefined : readCheckpoint(parseNote(note));
}

function table(records: readonly PublishedRecord[]): HTMLElement {
  const rows = records.map((record, i) => {
    const previous = records[i - 1];
    const link = hashOf({ view: "root", root: record.root, path: [] });
    const isSame = previous === undefined || previous.root === record.root;
    return h(
      "tr",
      {},
      h("td", {}, String(record.revision)),
      h("td", {}, h("a", { href: link }, short(record.root))),
      h("td", {}, publishedText(record)),
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
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": "Revisions" },
    h("table", {}, h("thead", {}, header), h("tbody", {}, ...rows)),
  );
}

function publishedText({ published_at: published }: PublishedRecord): string {
  const since = microseconds(published);
  return since === null ? `“${visible(published, 40)}” is not a time` : timeText(since);
}

/** Whether the records agree with each other, which anybody's records may. */
function consistency(records: readonly PublishedRecord[]): HTMLElement {
  const problems = checkHistory(records);
  if (problems.length > 0) return h("ul", { class: "bad" }, ...problems.map((each) => h("li", {}, each)));
  const single = "Only the newest record is here, without its history.";
  const several =
    "The revisions follow each other, and each names the root before it. That alone proves nothing: whoever serves this page could have written them.";
  return h("p", {}, records.length === 1 ? single : several);
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
    if ((microseconds(record.published_at) ?? 0n) < (microseconds(previous.published_at) ?? 0n))
      problems.push(`revision ${record.revision} is older than the one before it`);
    if (previous.frozen) problems.push(`revision ${record.revision} was published after the name was frozen`);
  });
  return problems;
}
