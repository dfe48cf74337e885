/** The explorer: a page that gets answers from whoever serves it, and believes none of them. */

import "../src/all-hashes.ts";
import { Cid } from "../src/cid.ts";
import { CoregwError, ProofError } from "../src/errors.ts";
import type { PublishedRecord } from "../src/publications.ts";
import { showDiff } from "./differences.ts";
import { byId, h, plural, short, visible, waiting } from "./dom.ts";
import { showName } from "./history.ts";
import { Ledger, type View } from "./ledger.ts";
import { forgetOpened, hashOf, noteOpened, openedPlaces, type Place, placeOf } from "./place.ts";
import { forgetBytes } from "./preview.ts";
import { findSource, type Source, SourceError } from "./source.ts";
import { showPayload, showRoot } from "./views.ts";

/** Increased with each place: what comes late for an earlier one is dropped. */
let current = 0;

async function show(source: Source): Promise<void> {
  const [mine, place] = [++current, placeOf(location.hash)];
  const view: View = { source, main: h("div"), ledger: new Ledger() };
  byId("verified").replaceWith(view.ledger.verifiedList);
  byId("told").replaceWith(view.ledger.toldList);
  byId("main").replaceChildren(waiting());
  forgetBytes();
  document.title = `${titleOf(place)} · coregw explorer`;
  fillForm(place);
  describe(view, place);
  try {
    await showPlace(view, place);
    noteOpened(place);
  } catch (error) {
    if (error instanceof SourceError)
      view.ledger.told(`The answer to the last question: ${error.message}. A failure proves nothing.`);
    view.main.append(failure(error, () => void showAndFocus(source)));
  }
  if (mine === current) byId("main").replaceChildren(view.main);
}

async function showAndFocus(source: Source): Promise<void> {
  await show(source);
  byId("main").focus();
}

function titleOf(place: Place): string {
  switch (place.view) {
    case "home":
      return "Start";
    case "unknown":
      return "No such place";
    case "root":
      return visible(place.path.at(-1) ?? place.root.slice(-8), 100);
    case "diff":
      return "Differences";
    case "name":
      return `${place.scope}/${place.name}`;
  }
}

async function showPlace(view: View, place: Place): Promise<void> {
  switch (place.view) {
    case "home":
      view.main.append(home(view.source));
      return;
    case "unknown":
      view.main.append(unknown(place.fragment));
      return;
    case "root":
      if (new Cid(place.root).kind === "cas") return showPayload(view, place.root, "payload");
      return showRoot(view, place.root, place.path, place.shown);
    case "diff":
      return showDiff(view, place.a, place.b);
    case "name":
      return showName(view, place.scope, place.name);
  }
}

/** What the page was told, whatever it shows. */
function describe({ source, ledger }: View, place: Place): void {
  if (source.about.kind === "gateway") ledger.told(`This is a coregw gateway, version ${source.about.version}.`);
  else ledger.told("These are the files of a static tree, on a web server.");
  if (place.view === "root")
    ledger.told(
      "That you want the root ",
      short(place.root),
      ": it is in the address of this page. Compare it with one that you trust.",
    );
  if (place.view === "diff") ledger.told("That these are the two roots that you want.");
}

function unknown(fragment: string): HTMLElement {
  const shown = alert(
    "This does not work",
    `“${visible(fragment, 200)}” in the address is no place of this page. Places are #/root/CID/path, #/diff/CID/CID and #/name/scope/name.`,
  );
  shown.append(h("p", {}, h("a", { href: "#/" }, "Start")));
  return shown;
}

/** What was opened in this browser before, with a button that forgets it. */
function opened(): HTMLElement | null {
  const places = openedPlaces();
  if (places.length === 0) return null;
  const link = (place: Place): HTMLElement => {
    if (place.view !== "root") return h("a", { href: hashOf(place) }, titleOf(place));
    const path = place.path.length === 0 ? "" : `/${visible(place.path.join("/"), 100)}`;
    return h("a", { href: hashOf(place) }, short(visible(place.root, 120)), path);
  };
  const section = h("section", { "aria-labelledby": "opened" });
  const forget = () => {
    forgetOpened();
    section.remove();
    byId("main").focus();
  };
  section.append(
    h("h2", { id: "opened" }, "Opened before"),
    h("ul", {}, ...places.map((place) => h("li", {}, link(place)))),
    h("p", {}, h("button", { type: "button", click: forget }, "Forget these")),
  );
  return section;
}

/** A form that lists the published names of a scope, which a gateway does for operators. */
function namesForm(source: Source): HTMLElement {
  const scope = h("input", { id: "scope", required: true, spellcheck: "false", autocomplete: "off" });
  const token = h("input", { id: "scope-token", type: "password", autocomplete: "off" });
  const found = h("div", { role: "status" });
  const link = ({ name }: PublishedRecord, within: string) =>
    h("li", {}, h("a", { href: hashOf({ view: "name", scope: within, name }) }, visible(`${within}/${name}`, 300)));
  const list = async (within: string): Promise<void> => {
    try {
      const records = await source.namesOf(within, token.value);
      const count = `${plural(records.length, "name")}, as this gateway says.`;
      found.replaceChildren(h("p", {}, count), h("ul", {}, ...records.map((each) => link(each, within))));
    } catch (error) {
      found.replaceChildren(h("p", { class: "bad", role: "alert" }, (error as Error).message));
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void list(scope.value.trim());
  };
  return h(
    "section",
    { "aria-labelledby": "names" },
    h("h2", { id: "names" }, "Published names"),
    h(
      "p",
      {},
      "Open a name that you know as scope/name above. A gateway lists the names of a scope to operators only.",
    ),
    h(
      "form",
      { submit },
      h("p", {}, h("label", { for: "scope" }, "Scope"), scope),
      h("p", {}, h("label", { for: "scope-token" }, "Operator’s token"), token),
      h("button", {}, "List the names"),
    ),
    found,
  );
}

function home(source: Source): HTMLElement {
  const field = (id: string, label: string) =>
    h(
      "p",
      {},
      h("label", { for: id }, label),
      h("input", { id, required: true, spellcheck: "false", autocomplete: "off" }),
    );
  const compare = h(
    "form",
    {
      submit: (event) => {
        event.preventDefault();
        const [a, b] = ["first", "second"].map((id) => byId<HTMLInputElement>(id).value.trim());
        location.hash = hashOf({ view: "diff", a: a ?? "", b: b ?? "" });
      },
    },
    field("first", "First root"),
    field("second", "Second root"),
    h("button", {}, "Compare"),
  );
  const isGateway = source.about.kind === "gateway";
  return h(
    "div",
    {},
    h(
      "h2",
      {},
      isGateway ? "A gateway for authenticated maps and lists" : "A static tree of authenticated maps and lists",
    ),
    h(
      "p",
      {},
      "Everything here has a root: a CID that fixes its whole content. Enter one above that you got from somebody whom you trust. ",
      "This page then gets answers with proofs, and checks each proof and each payload in your browser. ",
      "What it shows under “Verified here” is true of that root, even if whoever serves this page lies.",
    ),
    h(
      "p",
      {},
      "Trees: SHA-256 and BLAKE3. Payloads: these, SHA-512, SHA3-256 and BLAKE2b-256. A payload with another hash function is not shown.",
    ),
    h(
      "p",
      { class: "note" },
      "One thing it cannot check is itself: its scripts come from the same server. To be independent of that, serve this page from elsewhere, or use the command ",
      h("code", {}, "coregw"),
      " or the package ",
      h("code", {}, "coregw-verify"),
      ".",
    ),
    isGateway && h("p", {}, h("a", { href: "docs" }, "Documentation of the interface"), "."),
    opened(),
    isGateway && namesForm(source),
    h("h2", {}, "Compare two maps"),
    compare,
  );
}

/** Say what failed. If another attempt may succeed, a button makes it. */
function failure(error: unknown, again: () => void): HTMLElement {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof ProofError)
    return alert(
      "Rejected",
      `What was received is not what the root says: ${message}. Nothing of it is shown. Whoever served it is broken or lies.`,
    );
  if (error instanceof CoregwError && error.code === "invalid_cid")
    return alert(
      "This does not work",
      `${visible(message)}. Enter a root (bagiof…) whole, as you got it, or a published name (scope/name).`,
    );
  if (!(error instanceof SourceError)) return alert("This does not work", visible(message));
  const shown = alert("No answer", error.status === 0 ? `${message}.` : `${message} (status ${error.status})`);
  if (error.status === 0 || error.status >= 500)
    shown.append(h("p", {}, h("button", { type: "button", click: again }, "Try again")));
  return shown;
}

function alert(title: string, text: string): HTMLElement {
  return h("div", { class: "bad", role: "alert" }, h("h2", {}, title), h("p", {}, text));
}

function fillForm(place: Place): void {
  byId<HTMLInputElement>("what").value =
    place.view === "root" ? place.root : place.view === "name" ? `${place.scope}/${place.name}` : "";
  byId<HTMLInputElement>("path").value = place.view === "root" ? place.path.join("/") : "";
}

/** Where a form's input leads: a CID, which a path may follow, or `scope/name`. */
function placeOfInput(what: string, path: string): Place {
  const [first = "", ...rest] = what.replace(/^coregw:\/\//, "").split("/");
  if (isCid(first))
    return { view: "root", root: first, path: [...rest, ...path.split("/")].filter((each) => each !== "") };
  const name = /^(?!\.{1,2}\/)([A-Za-z0-9._-]{1,128})\/(?!\.{1,2}$)([A-Za-z0-9._-]{1,128})$/.exec(what);
  if (name !== null) return { view: "name", scope: name[1] as string, name: name[2] as string };
  return { view: "root", root: what, path: path.split("/").filter((each) => each !== "") };
}

function isCid(text: string): boolean {
  try {
    return new Cid(text).text !== "";
  } catch {
    return false;
  }
}

async function start(): Promise<void> {
  const source = await findSource();
  byId("open").addEventListener("submit", (event) => {
    event.preventDefault();
    const [what, path] = ["what", "path"].map((id) => byId<HTMLInputElement>(id).value.trim());
    const target = hashOf(placeOfInput(what ?? "", path ?? ""));
    if (location.hash === target) void show(source);
    else location.hash = target;
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  addEventListener("hashchange", () => {
    void showAndFocus(source);
  });
  await show(source);
}

try {
  await start();
} catch (error) {
  byId("main").replaceChildren(failure(error, () => location.reload()));
}
