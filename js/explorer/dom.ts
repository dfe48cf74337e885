/** Elements without markup in strings: text is always text. */

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | boolean | ((event: Event) => void)>;

/** Make an element. An attribute that is a function is an event's listener; one that is false is left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The element with an id that index.html has. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no element #${id}`);
  return found as T;
}

/** A CID or digest, shortened for the eye, with the whole text for copying and for screen readers. */
export function short(text: string): HTMLElement {
  const visible = text.length > 24 ? `${text.slice(0, 12)}…${text.slice(-8)}` : text;
  return h("code", { title: text }, visible);
}

/** A number of bytes for people. */
export function bytesText(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(Math.floor(Math.log2(size) / 10), units.length);
  return `${(size / 1024 ** power).toFixed(1)} ${units[power - 1]}`;
}

/** A counted noun. */
export function plural(count: number, noun: string, nouns = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
}
