/** Elements without markup in strings: text is always text. */

import { ProofError } from "../src/errors.ts";

/** Until then nobody wonders whether something happens. */
const SILENT_SECONDS = 3;

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

/** Text of others on one line: control, formatting and bidirectional characters, and backslashes, are escaped. */
export function visible(text: string, limit = 5000): string {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return cut.replace(/[\\\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (letter) =>
    letter === "\\" ? "\\\\" : `\\u{${(letter.codePointAt(0) as number).toString(16)}}`,
  );
}

/** A path for people. */
export function pathText(path: readonly string[]): string {
  return visible(path.join("/"));
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

/** What to say of a failure: what is not proven was rejected, anything else just failed. */
export function rejected(error: Error): string {
  if (!(error instanceof ProofError)) return error.message;
  return `Rejected: what was received is not what the root says: ${error.message}. Nothing of it is shown.`;
}

/** A button that does what takes long, once at a time. What fails is said in `place`. */
export function asking(text: string, place: HTMLElement, act: () => Promise<void>): HTMLElement {
  let isAsking = false;
  const click = async () => {
    if (isAsking) return;
    isAsking = true;
    try {
      await act();
    } catch (error) {
      place.replaceChildren(h("p", { class: "bad", role: "alert" }, rejected(error as Error)));
    } finally {
      isAsking = false;
    }
  };
  return h("button", { type: "button", click: () => void click() }, text);
}

/** What stands where something is fetched. After some seconds it counts them, for the eye only. */
export function waiting(): HTMLElement {
  const seconds = h("span", { "aria-hidden": "true" });
  const place = h("p", { class: "busy", role: "status" }, "Fetching and verifying…", seconds);
  const began = Date.now();
  const timer = setInterval(() => {
    const passed = Math.round((Date.now() - began) / 1000);
    if (!place.isConnected) clearInterval(timer);
    else if (passed >= SILENT_SECONDS) seconds.textContent = ` for ${passed} s`;
  }, 1000);
  return place;
}
