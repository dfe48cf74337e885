/** Places of the page, as fragments of its address, and what this browser keeps for the page. */

/** What of a folder's entries is shown. */
export interface Shown {
  /** Only names with this in them. */
  readonly filter: string;
  /** Counts from 1. */
  readonly page: number;
}

export const ALL: Shown = { filter: "", page: 1 };

/** What is shown: a root and a path in it, a diff of two roots, or the history of a name. */
export type Place =
  | { readonly view: "home" }
  | { readonly view: "unknown"; readonly fragment: string }
  | { readonly view: "root"; readonly root: string; readonly path: readonly string[]; readonly shown?: Shown }
  | { readonly view: "diff"; readonly a: string; readonly b: string }
  | { readonly view: "name"; readonly scope: string; readonly name: string };

export function hashOf(place: Place): string {
  switch (place.view) {
    case "home":
      return "#/";
    case "unknown":
      return place.fragment;
    case "root":
      return `#/root/${[place.root, ...place.path].map(encodeURIComponent).join("/")}${queryOf(place.shown ?? ALL)}`;
    case "diff":
      return `#/diff/${place.a}/${place.b}`;
    case "name":
      return `#/name/${place.scope}/${place.name}`;
  }
}

function queryOf({ filter, page }: Shown): string {
  const parts = [filter !== "" && `filter=${encodeURIComponent(filter)}`, page > 1 && `page=${page}`].filter(Boolean);
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
}

const QUERY = /\?(?=[fp])(?:filter=([^&]*))?&?(?:page=([1-9][0-9]{0,6}))?$/;

export function placeOf(hash: string): Place {
  const [, filter = "", page = "1"] = QUERY.exec(hash) ?? [];
  const [start, view, ...parts] = hash.replace(QUERY, "").split("/").map(decode);
  const [first = "", second = ""] = parts;
  if (view === "root" && first !== "") {
    const path = parts.slice(1).filter((each) => each !== "");
    return { view, root: first, path, shown: { filter: decode(filter), page: Number(page) } };
  }
  if (view === "diff" && second !== "") return { view, a: first, b: second };
  if (view === "name" && second !== "") return { view, scope: first, name: second };
  const isHome = (start === "" || start === "#") && (view ?? "") === "" && parts.length === 0;
  return isHome ? { view: "home" } : { view: "unknown", fragment: hash };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What this browser kept for this page, or null; also if it keeps nothing. */
export function recall(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // A browser that keeps nothing forgets what it verified and opened; the next visit says so.
  }
}

const OPENED = "coregw opened";
const MAX_OPENED = 12;

/** Roots and names that were opened in this browser, the last one first. */
export function openedPlaces(): Place[] {
  try {
    const hashes: unknown = JSON.parse(recall(OPENED) ?? "[]");
    const places = (Array.isArray(hashes) ? hashes : []).slice(0, MAX_OPENED).map((each) => placeOf(String(each)));
    return places.filter(({ view }) => view === "root" || view === "name");
  } catch {
    return [];
  }
}

/** Keep what was opened: of a root, only the path that was opened last. */
export function noteOpened(place: Place): void {
  if (place.view !== "root" && place.view !== "name") return;
  const isSame = (other: Place) =>
    place.view === "root"
      ? other.view === "root" && other.root === place.root
      : other.view === "name" && hashOf(other) === hashOf(place);
  const others = openedPlaces().filter((other) => !isSame(other));
  keep(OPENED, JSON.stringify([place, ...others].slice(0, MAX_OPENED).map(hashOf)));
}

export function forgetOpened(): void {
  keep(OPENED, "[]");
}
