/** Places of the page, as fragments of its address. */

/** What is shown: a root and a path in it, a diff of two roots, or the history of a name. */
export type Place =
  | { readonly view: "home" }
  | { readonly view: "root"; readonly root: string; readonly path: readonly string[] }
  | { readonly view: "diff"; readonly a: string; readonly b: string }
  | { readonly view: "name"; readonly scope: string; readonly name: string };

export function hashOf(place: Place): string {
  switch (place.view) {
    case "home":
      return "#/";
    case "root":
      return `#/root/${[place.root, ...place.path].map(encodeURIComponent).join("/")}`;
    case "diff":
      return `#/diff/${place.a}/${place.b}`;
    case "name":
      return `#/name/${place.scope}/${place.name}`;
  }
}

export function placeOf(hash: string): Place {
  const [, view, ...parts] = hash.split("/").map(decode);
  const [first = "", second = ""] = parts;
  if (view === "root" && first !== "") return { view, root: first, path: parts.slice(1).filter((each) => each !== "") };
  if (view === "diff" && second !== "") return { view, a: first, b: second };
  if (view === "name" && second !== "") return { view, scope: first, name: second };
  return { view: "home" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
