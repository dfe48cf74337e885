/** The views of maps, lists and payloads. */

import { fromUtf8 } from "../src/bytes.ts";
import { Cid, parseRoot, type Root } from "../src/cid.ts";
import { ATTRIBUTES_PATH, type Attributes } from "../src/folders.ts";
import { verifyIndex, verifyKey, verifyRange } from "../src/verify.ts";
import { derivation } from "./derivation.ts";
import { asking, bytesText, h, pathText, plural, rejected, short, visible } from "./dom.ts";
import type { View } from "./ledger.ts";
import { attributesMap, type Entry, Folder, recordAt } from "./listing.ts";
import { ALL, hashOf, type Shown } from "./place.ts";
import { download, preview } from "./preview.ts";
import { fetchPayload, SourceError } from "./source.ts";

const MAX_PREVIEW_BYTES = 4 * 2 ** 20;
const MAX_DOWNLOAD_BYTES = 256 * 2 ** 20;
const MAX_ELEMENTS = 200;
const PAGE_ROWS = 200;
/** Below it, nobody needs to filter. */
const FEW_ENTRIES = 20;
/** Entries that are listed without being asked for, to know the total. */
const MAX_LISTED = 20_000;
const MAX_LISTED_PAGES = 100;

/** Show what a path leads to: a folder, a list, or a payload. */
export async function showRoot(view: View, cid: string, path: readonly string[], shown: Shown = ALL): Promise<void> {
  const root = parseRoot(cid);
  view.main.append(breadcrumbs(root, path));
  if (root.kind === "list") {
    if (path.length === 0) return showList(view, root, "list");
    const [index, target] = await showElement(view, root, path[0] as string);
    if (target !== null) await showTarget(view, target, `element ${index}`, path.slice(1));
    return;
  }
  const target = path.length === 0 ? null : await showKey(view, root, path);
  if (target !== null) await showTarget(view, target, path.at(-1) as string, []);
  const isEmpty = await showMap(view, root, path, shown);
  if (!isEmpty || target !== null) return;
  if (path.length === 0) {
    view.main.append(h("p", {}, "The map is empty."));
    return;
  }
  const attributes = await attributesMap(view.source, root);
  if (attributes !== null && (await showRecord(view, root, attributes, path))) return;
  view.main.append(h("p", {}, "Nothing is at or below this path in this map."));
  await showWayOn(view, root, attributes, path);
}

/**
 * Show the symbolic link or the empty folder at a path, which only the folder's attributes name, and where a path below a
 * link leads on. Returns whether there is one.
 */
async function showRecord(
  view: View,
  root: Root,
  attributes: string,
  path: readonly string[],
  below: readonly string[] = [],
): Promise<boolean> {
  const found = await recordAt(view.source, attributes, path);
  if (found === null || found.known.kind === "file" || (found.known.kind === "folder" && below.length > 0))
    return false;
  const { known, proof } = found;
  const isLink = known.kind === "link";
  view.ledger.verified(
    `“${pathText(path)}” is ${isLink ? "a symbolic link" : "an empty folder"} in the attributes `,
    short(attributes),
    " (inclusion proof).",
  );
  tellAttributes(view);
  const time = known.mtime === undefined ? "" : `, changed at ${timeText(known)} UTC`;
  const what = `${isLink ? "symbolic link" : "empty folder"}${time}`;
  view.main.append(
    h("p", {}, below.length === 0 ? `${isLink ? "A" : "An"} ${what}.` : `“${pathText(path)}” is a ${what}.`),
    isLink ? linkTarget(root, path, known.link ?? new Uint8Array(0), below) : "",
    derivation(parseRoot(attributes), proof.bytes, proof.verify),
  );
  return true;
}

/** Where a symbolic link, and a path below it, leads by the text alone: another link on that way is a step of its own. */
function linkTarget(root: Root, path: readonly string[], link: Uint8Array, below: readonly string[]): HTMLElement {
  const text = fromUtf8(link);
  const said = `“${visible(text ?? new TextDecoder().decode(link))}”`;
  const target = path.slice(0, -1);
  let isInside = text !== null && !text.startsWith("/");
  for (const segment of (text ?? "").split("/")) {
    if (segment === "..") isInside &&= target.pop() !== undefined;
    else if (segment !== "" && segment !== ".") target.push(segment);
  }
  if (!isInside) return h("p", {}, `It leads to ${said}, which is not in this map.`);
  const href = (to: readonly string[]) => hashOf({ view: "root", root: root.cid.text, path: to });
  const on = h("a", { href: href([...target, ...below]), class: "button" }, `Look for “${pathText(below)}” there`);
  return h("p", {}, "It leads to ", h("a", { href: href(target) }, said), ". ", below.length > 0 && on);
}

function tellAttributes({ ledger }: View): void {
  ledger.told(
    "Sizes, modes, times and links are what the maker of the root wrote: proven to be part of the root, not to be right.",
  );
}

/**
 * Show where the longest prefix of an absent path leads on: a nested map or list is another tree, with its own proofs, and
 * a symbolic link names another path of this one.
 */
async function showWayOn(view: View, root: Root, attributes: string | null, path: readonly string[]): Promise<void> {
  for (let cut = path.length - 1; cut > 0; cut--) {
    const prefix = path.slice(0, cut);
    const target = verifyKey(root.cid, prefix, await view.source.proveKey(root.cid.text, prefix));
    const isLink = target === null && attributes !== null;
    if (isLink && (await showRecord(view, root, attributes, prefix, path.slice(cut)))) return;
    const kind = target === null ? "cas" : new Cid(target).kind;
    if (target === null || kind === "cas") continue;
    view.ledger.verified(`“${pathText(prefix)}” is the ${kind} `, short(target), " in this map (inclusion proof).");
    const href = hashOf({ view: "root", root: target, path: path.slice(cut) });
    const link = h(
      "a",
      { href, class: "button" },
      `Look for “${pathText(path.slice(cut))}” in the ${kind} `,
      short(target),
    );
    view.main.append(h("p", {}, link));
    return;
  }
}

function breadcrumbs(root: Root, path: readonly string[]): HTMLElement {
  const steps = path.map((name, i) =>
    h(
      "li",
      {},
      h("a", { href: hashOf({ view: "root", root: root.cid.text, path: path.slice(0, i + 1) }) }, visible(name)),
    ),
  );
  const top = h(
    "li",
    {},
    h("a", { href: hashOf({ view: "root", root: root.cid.text, path: [] }) }, short(root.cid.text)),
  );
  return h("nav", { "aria-label": "Path" }, h("ol", { class: "crumbs" }, top, ...steps));
}

async function showKey(view: View, root: Root, path: readonly string[]): Promise<string | null> {
  const verify = (bytes: Uint8Array) => verifyKey(root.cid, path, bytes);
  const proof = await view.source.proveKey(root.cid.text, path);
  const target = verify(proof);
  const joined = pathText(path);
  if (target === null) {
    view.ledger.verified(`The map has nothing at “${joined}” itself (absence proof).`);
  } else {
    view.ledger.verified(`“${joined}” is `, short(target), ` in this map (inclusion proof).`);
  }
  view.main.append(h("h2", {}, joined), derivation(root, proof, verify));
  return target;
}

async function showElement(view: View, root: Root, segment: string): Promise<[number, string | null]> {
  const index = Number(segment);
  if (!/^(0|[1-9][0-9]*)$/.test(segment)) throw new Error(`“${visible(segment, 60)}” is not an index of a list`);
  const verify = (bytes: Uint8Array) => verifyIndex(root.cid, index, bytes);
  const proof = await view.source.proveIndex(root.cid.text, index);
  const { target, size, length } = verify(proof);
  if (target === null) view.ledger.verified(`The list has ${length} elements, and so none at ${index}.`);
  else view.ledger.verified(`Element ${index} of ${length} is `, short(target), `, of size ${size}.`);
  view.main.append(h("h2", {}, `Element ${index}`), derivation(root, proof, verify));
  return [index, target];
}

/** Show a target in place: lists and payloads with a preview, nested maps as a link. */
async function showTarget(view: View, target: string, name: string, rest: readonly string[]): Promise<void> {
  const { kind } = new Cid(target);
  if (kind === "cas" && rest.length > 0) {
    view.main.append(
      h("p", {}, "This is the payload ", short(target), `. Nothing is below a payload, so not “${pathText(rest)}”.`),
    );
    return;
  }
  if (kind === "cas") return showPayload(view, target, name);
  if (kind === "list" && rest.length === 0) return showList(view, parseRoot(target), name);
  const href = hashOf({ view: "root", root: target, path: rest });
  view.main.append(h("p", {}, h("a", { href, class: "button" }, `Open the ${kind} `, short(target))));
}

/** Show a payload: compared with its CID before it is shown, and fetched whole only when asked for if it is long. */
export async function showPayload(view: View, cid: string, name: string): Promise<void> {
  const section = h("section", { "aria-label": "Payload" }, h("p", {}, "Payload ", short(cid)));
  view.main.append(section);
  const place = h("div", { role: "status" });
  const load = async (limit: number): Promise<void> => {
    const bytes = await fetchPayload(cid, limit);
    view.ledger.verified(`${bytesText(bytes.length)} are the payload `, short(cid), " (hashed here).");
    const isShort = bytes.length <= MAX_PREVIEW_BYTES;
    place.replaceChildren(h("p", {}, download(bytes, fileName(name))), ...(isShort ? [preview(bytes)] : []));
  };
  section.append(place);
  try {
    await load(MAX_PREVIEW_BYTES);
  } catch (error) {
    if (!(error instanceof SourceError) || error.status !== 200) throw error;
    place.append(
      asking(`Fetch and verify all of it, more than ${bytesText(MAX_PREVIEW_BYTES)}`, place, () =>
        load(MAX_DOWNLOAD_BYTES),
      ),
    );
  }
}

function fileName(name: string): string {
  return name.replace(/[^\p{L}\p{N}._ -]/gu, "_").replace(/^\.+/, "_") || "payload";
}

async function showList(view: View, root: Root, name: string): Promise<void> {
  const probe = await view.source.proveRange(root.cid.text, 0, 0);
  const { length, totalSize } = verifyRange(root.cid, 0, 0, probe);
  const extent = `${plural(length, "element")} with a total of ${totalSize.toLocaleString("en")}`;
  view.ledger.verified("The list ", short(root.cid.text), ` has ${extent} (range proof).`);
  const isFile = totalSize > length; // an element has a measure of 1 if nobody gave it another
  const about = `A list of ${extent}${isFile ? ` (${bytesText(totalSize)} if it is a file in chunks)` : ""}.`;
  const section = h("section", { "aria-label": "List" }, h("p", {}, about));
  view.main.append(section);
  if (isFile && totalSize <= MAX_DOWNLOAD_BYTES) section.append(assembler(view, root, totalSize, fileName(name)));
  if (length > 0) await showElements(view, section, root, totalSize / length, totalSize);
}

/** Show the elements of a list, some at a time. `average` is their average size. */
async function showElements(
  view: View,
  section: HTMLElement,
  root: Root,
  average: number,
  total: number,
): Promise<void> {
  const rows = h("tbody");
  const header = h("tr", {}, ...["Index", "Size", "Target"].map((each) => h("th", { scope: "col" }, each)));
  const frame = { class: "table", tabindex: "0", role: "region", "aria-label": "Table of elements" };
  const rest = h("div", { role: "status" });
  section.append(h("div", frame, h("table", {}, h("thead", {}, header), rows)), rest);
  let [count, start] = [0, 0];
  const more = async (): Promise<void> => {
    const [from, end] = [start, Math.min(total, Math.ceil(start + average * MAX_ELEMENTS))];
    const verify = (bytes: Uint8Array) => verifyRange(root.cid, from, end, bytes);
    const proof = await view.source.proveRange(root.cid.text, from, end);
    const { segments, sizes } = verify(proof);
    rows.append(...segments.map((target, i) => elementRow(root, count + i, sizes[i] as number, target)));
    count += segments.length;
    start += sizes.reduce((sum, size) => sum + size, 0);
    view.ledger.verified(`The first ${plural(count, "element")} of the list (range proof).`);
    rest.replaceChildren(...(start < total ? [asking("Show more", rest, more)] : []), derivation(root, proof, verify));
  };
  await more();
}

function elementRow(root: Root, index: number, size: number, target: string): HTMLElement {
  const href = hashOf({ view: "root", root: root.cid.text, path: [String(index)] });
  const cells = [h("a", { href }, String(index)), size.toLocaleString("en"), short(target)];
  return h("tr", {}, ...cells.map((cell) => h("td", {}, cell)));
}

/** A button that fetches all chunks of a file, compares each with its CID, and offers the file. After a failure it goes on. */
function assembler(view: View, root: Root, totalSize: number, name: string): HTMLElement {
  const place = h("div", { role: "status" });
  let bytes: Uint8Array | null = null;
  let [at, next] = [0, 0];
  const fetchAll = async () => {
    bytes ??= new Uint8Array(totalSize);
    const range = verifyRange(root.cid, 0, totalSize, await view.source.proveRange(root.cid.text, 0, totalSize));
    for (; next < range.segments.length; next++) {
      const payload = await fetchPayload(range.segments[next] as string, totalSize);
      if (payload.length !== range.sizes[next])
        throw new Error(`chunk ${next} has ${payload.length} bytes, the list says ${range.sizes[next]}`);
      bytes.set(payload, at);
      at += payload.length;
      place.replaceChildren(`${bytesText(at)} of ${bytesText(totalSize)} verified`);
    }
    view.ledger.verified(
      `${bytesText(totalSize)} in ${plural(range.segments.length, "chunk")} are the file (each chunk hashed here).`,
    );
    place.replaceChildren(
      h("p", {}, download(bytes, name)),
      ...(totalSize <= MAX_PREVIEW_BYTES ? [preview(bytes)] : []),
    );
  };
  const button = asking(`Fetch and verify the whole file (${bytesText(totalSize)})`, place, fetchAll);
  return h("div", {}, h("p", {}, button), place);
}

/** Show the entries at and below a prefix. Returns whether there are none. */
async function showMap(view: View, root: Root, prefix: readonly string[], shown: Shown): Promise<boolean> {
  const folder = Folder.at(view.source, root, prefix);
  do await folder.more();
  while (folder.entries.length === 0 && !folder.isComplete);
  if (folder.entries.length === 0) return true;
  const table = new EntryTable(view, root, prefix, folder, shown);
  view.main.append(table.section);
  void table.listAll();
  return false;
}

/** The entries of a folder in pages, with a filter and, as soon as all of them are listed, their number. */
class EntryTable {
  readonly section = h("section", { "aria-label": "Entries" });
  readonly #view: View;
  readonly #root: Root;
  readonly #prefix: readonly string[];
  readonly #folder: Folder;
  #shown: Shown;
  readonly #rows = h("tbody");
  readonly #total = h("p", { class: "total", role: "status" });
  readonly #problem = h("p", { class: "bad" });
  readonly #rest = h("div");
  readonly #pager: HTMLElement;
  readonly #tools: HTMLElement;
  readonly #position = h("span", { role: "status" });
  readonly #previous: HTMLButtonElement;
  readonly #next: HTMLButtonElement;
  readonly #claim: HTMLElement;
  #isTold = false;
  /** The rows, which stay as they are, with the reader's focus, while others are listed. */
  #drawn = "";

  constructor(view: View, root: Root, prefix: readonly string[], folder: Folder, shown: Shown) {
    [this.#view, this.#root, this.#prefix, this.#folder, this.#shown] = [view, root, prefix, folder, shown];
    const turn = (by: number) => () => {
      this.#show({ ...this.#shown, page: this.#page + by });
      this.section.scrollIntoView();
    };
    this.#previous = h("button", { type: "button", click: turn(-1) }, "Previous page");
    this.#next = h("button", { type: "button", click: turn(1) }, "Next page");
    this.#pager = h("nav", { class: "row pager", "aria-label": "Pages" }, this.#previous, this.#position, this.#next);
    const filter = h("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false" });
    filter.value = shown.filter;
    filter.addEventListener("input", () => this.#show({ filter: filter.value, page: 1 }));
    this.#tools = h("p", { class: "filter" }, h("label", { for: "filter" }, "Filter by name"), filter);
    this.#claim = view.ledger.verified();
    const titles = ["Name", "Size", "Mode", "Modified (UTC)", "Target"];
    const header = h("tr", {}, ...titles.map((each) => h("th", { scope: "col" }, each)));
    const frame = { class: "table", tabindex: "0", role: "region", "aria-label": "Table of entries" };
    this.section.append(
      h("h2", {}, prefix.length === 0 ? `Map with suite ${root.suite.name}` : "Entries"),
      this.#total,
      this.#tools,
      h("div", frame, h("table", {}, h("thead", {}, header), this.#rows)),
      this.#pager,
      this.#problem,
      this.#rest,
    );
    if (folder.first !== null) this.section.append(derivation(root, folder.first.bytes, folder.first.verify));
    this.#draw();
  }

  get #found(): Entry[] {
    const wanted = this.#shown.filter.toLowerCase();
    return this.#folder.entries.filter(({ name }) => name.toLowerCase().includes(wanted));
  }

  get #pages(): number {
    return Math.max(1, Math.ceil(this.#found.length / PAGE_ROWS));
  }

  /** The page that is shown: the one that is wanted, once it is listed. */
  get #page(): number {
    return Math.min(this.#shown.page, this.#pages);
  }

  /** List what is left, some at a time; what fails can be tried again. */
  async listAll(): Promise<void> {
    const enough = this.#folder.entries.length + MAX_LISTED;
    this.section.setAttribute("aria-busy", "true");
    try {
      for (let page = 0; !this.#folder.isComplete && this.#folder.entries.length < enough; page++) {
        if (page === MAX_LISTED_PAGES || (page > 0 && !this.section.isConnected)) break; // the view was left
        await this.#folder.more();
        this.#draw();
      }
      const more = asking("List more", this.#rest, () => this.listAll());
      this.#rest.replaceChildren(...(this.#folder.isComplete ? [] : [more]));
    } catch (error) {
      const again = h("button", { type: "button", click: () => void this.listAll() }, "Try again");
      const why = h("p", { class: "bad", role: "alert" }, `Not all entries were listed. ${rejected(error as Error)}`);
      this.#rest.replaceChildren(why, again);
    } finally {
      this.section.removeAttribute("aria-busy");
    }
  }

  /** Show other entries, and keep in the address which, so that who comes back finds them. */
  #show(shown: Shown): void {
    this.#shown = shown;
    const place = { view: "root", root: this.#root.cid.text, path: this.#prefix, shown } as const;
    history.replaceState(null, "", hashOf(place));
    this.#draw();
  }

  #draw(): void {
    const { entries, isComplete, problem } = this.#folder;
    const [found, page, pages] = [this.#found, this.#page, this.#pages];
    const first = (page - 1) * PAGE_ROWS;
    const here = found.slice(first, first + PAGE_ROWS);
    const drawn = JSON.stringify(here.map(({ name, target, hasChildren }) => [name, target, hasChildren]));
    if (drawn !== this.#drawn) this.#rows.replaceChildren(...here.map((each) => row(this.#root, this.#prefix, each)));
    this.#drawn = drawn;
    const all = `${plural(entries.length, "entry", "entries")}${isComplete ? "" : " so far"}`;
    this.#total.replaceChildren(
      this.#shown.filter === "" ? `${all}.` : `${found.length.toLocaleString("en")} of ${all}.`,
    );
    this.#tools.hidden = entries.length <= FEW_ENTRIES && isComplete && this.#shown.filter === "";
    this.#pager.hidden = pages === 1;
    this.#position.replaceChildren(`Page ${page.toLocaleString("en")} of ${pages.toLocaleString("en")}`);
    [this.#previous.disabled, this.#next.disabled] = [page === 1, page === pages];
    this.#problem.replaceChildren(problem === null ? "" : `Sizes, modes and times are missing: ${problem}.`);
    const where = this.#prefix.length === 0 ? "the map" : `“${pathText(this.#prefix)}”`;
    const extent = isComplete ? `all there are of ${where}` : `the first of ${where}, without a gap`;
    this.#claim.replaceChildren(`${plural(entries.length, "entry", "entries")}: ${extent} (listing proof).`);
    if (this.#isTold || entries.every(({ known }) => known === undefined)) return;
    this.#isTold = true;
    tellAttributes(this.#view);
  }
}

function modeText({ mode }: Attributes): string {
  return mode === undefined ? "" : mode.toString(8).padStart(4, "0");
}

/** The time of an entry in UTC. */
function timeText({ mtime }: Attributes): string {
  if (mtime === undefined) return "";
  const date = new Date(Number(mtime / 1_000_000n));
  return Number.isNaN(date.getTime()) ? `${mtime} ns` : date.toISOString().slice(0, -8).replace("T", " ");
}

function row(root: Root, prefix: readonly string[], { name, target, hasChildren, known }: Entry): HTMLElement {
  const href = hashOf({ view: "root", root: root.cid.text, path: [...prefix, name] });
  const isEmpty = target === null && !hasChildren && known?.kind === "folder";
  const link = known?.link === undefined ? null : ` → ${visible(new TextDecoder().decode(known.link))}`;
  const isReserved = prefix.length === 0 && name === ATTRIBUTES_PATH[0];
  const opened = h("a", { href }, visible(name), hasChildren || isEmpty ? "/" : null);
  return h(
    "tr",
    {},
    h("td", {}, h("span", { class: "name" }, opened, isEmpty ? " (empty)" : null, link)),
    h("td", {}, known?.size === undefined ? "" : bytesText(known.size)),
    h("td", {}, known === undefined ? "" : modeText(known)),
    h("td", {}, known === undefined ? "" : timeText(known)),
    h("td", {}, target !== null ? short(target) : isReserved && "has sizes, modes, times and links"),
  );
}
