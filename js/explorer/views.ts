/** The views of maps, lists and payloads. */

import { Cid, parseRoot, type Root } from "../src/cid.ts";
import { ATTRIBUTES_PATH, type Attributes } from "../src/folders.ts";
import { verifyIndex, verifyKey, verifyRange } from "../src/verify.ts";
import { derivation } from "./derivation.ts";
import { asking, bytesText, h, pathText, plural, short, visible } from "./dom.ts";
import type { View } from "./ledger.ts";
import { AttributeReader, type Entry, list } from "./listing.ts";
import { hashOf } from "./place.ts";
import { download, preview } from "./preview.ts";
import { fetchPayload, SourceError } from "./source.ts";

const MAX_PREVIEW_BYTES = 4 * 2 ** 20;
const MAX_DOWNLOAD_BYTES = 256 * 2 ** 20;
const MAX_ELEMENTS = 200;

/** Show what a path leads to: a folder, a list, or a payload. */
export async function showRoot(view: View, cid: string, path: readonly string[]): Promise<void> {
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
  const isEmpty = await showMap(view, root, path, target !== null);
  if (isEmpty && target === null) await showWayOn(view, root, path);
}

/** Show where the longest prefix of an absent path leads on: a nested map or list is another tree, with its own proofs. */
async function showWayOn(view: View, root: Root, path: readonly string[]): Promise<void> {
  for (let cut = path.length - 1; cut > 0; cut--) {
    const prefix = path.slice(0, cut);
    const target = verifyKey(root.cid, prefix, await view.source.proveKey(root.cid.text, prefix));
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
async function showMap(view: View, root: Root, prefix: readonly string[], hasTarget: boolean): Promise<boolean> {
  const section = h("section", { "aria-label": "Entries" });
  const rows = h("tbody");
  const [rest, about] = [h("div", { role: "status" }), h("p", { class: "bad" })];
  let isTold = false;
  let [next, count, attributes] = [null as readonly string[] | null, 0, undefined as AttributeReader | undefined];
  const more = async (): Promise<void> => {
    const listing = await list(view.source, root, prefix, next);
    if (count === 0 && listing.entries.length === 0 && hasTarget) return;
    attributes ??= await AttributeReader.open(view.source, root, prefix);
    const names = new Set(listing.entries.map(({ name }) => name));
    const known = await attributes.through(listing.next === null ? null : (listing.next[prefix.length] as string));
    const only = [...known].filter(([name, { kind }]) => !names.has(name) && kind !== "file");
    rows.append(
      ...listing.entries.map((entry) => row(root, prefix, entry, known.get(entry.name))),
      ...only.map(([name, said]) => row(root, prefix, { name, target: null, hasChildren: false }, said)),
    );
    [count, next] = [count + listing.entries.length, listing.next];
    const where = prefix.length === 0 ? "the map" : `“${pathText(prefix)}”`;
    const extent = next === null ? `all there are of ${where}` : `the first of ${where}, without a gap`;
    view.ledger.verified(`${plural(count, "entry", "entries")}: ${extent} (listing proof).`);
    about.replaceChildren(
      attributes.problem === null ? "" : `Sizes, modes and times are missing: ${attributes.problem}.`,
    );
    if (known.size > 0 && !isTold) {
      isTold = true;
      view.ledger.told(
        "Sizes, modes and times are what the maker of the root wrote: proven to be part of the root, not to be right.",
      );
    }
    rest.replaceChildren(...(next === null ? [] : [asking("Show more", rest, more)]));
    section.append(about, rest);
    for (const { proof, verify } of listing.pages.slice(0, 1)) section.append(derivation(root, proof, verify));
  };
  await more();
  if (count === 0 && hasTarget) return true;
  const header = h(
    "tr",
    {},
    ...["Name", "Size", "Mode", "Modified", "Target"].map((each) => h("th", { scope: "col" }, each)),
  );
  section.prepend(
    h("h2", {}, prefix.length === 0 ? `Map with suite ${root.suite.name}` : "Entries"),
    count === 0
      ? h("p", {}, "Nothing is at or below this path in this map.")
      : h(
          "div",
          { class: "table", tabindex: "0", role: "region", "aria-label": "Table of entries" },
          h("table", {}, h("thead", {}, header), rows),
        ),
  );
  view.main.append(section);
  return count === 0;
}

function row(root: Root, prefix: readonly string[], entry: Entry, known: Attributes | undefined): HTMLElement {
  const href = hashOf({ view: "root", root: root.cid.text, path: [...prefix, entry.name] });
  const isThere = entry.target !== null || entry.hasChildren; // symbolic links and empty folders are only in the attributes
  const link = known?.link === undefined ? null : ` → ${visible(new TextDecoder().decode(known.link))}`;
  const mode = known?.mode === undefined ? "" : known.mode.toString(8).padStart(4, "0");
  const time =
    known?.mtime === undefined
      ? ""
      : new Date(Number(known.mtime / 1_000_000n)).toISOString().slice(0, 16).replace("T", " ");
  const size = known?.size === undefined ? "" : bytesText(known.size);
  const isReserved = prefix.length === 0 && entry.name === ATTRIBUTES_PATH[0];
  return h(
    "tr",
    {},
    h(
      "td",
      {},
      h(
        "span",
        { class: "name" },
        isThere
          ? h("a", { href }, visible(entry.name), entry.hasChildren ? "/" : null)
          : `${visible(entry.name)}${known?.kind === "folder" ? "/ (empty)" : ""}`,
        link,
      ),
    ),
    h("td", {}, size),
    h("td", {}, mode),
    h("td", {}, time),
    h("td", {}, entry.target !== null ? short(entry.target) : isReserved && "has sizes, modes, times and links"),
  );
}
