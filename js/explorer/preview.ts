/** Previews and downloads of verified bytes. Nothing of them is ever executed. */

import { fromUtf8, toHex } from "../src/bytes.ts";
import { bytesText, h } from "./dom.ts";

const MAX_TEXT = 200_000;
const MAX_HEX = 4096;

/** Images that a browser decodes without scripts, by their first bytes. SVG is shown as text. */
const IMAGES: readonly [string, RegExp][] = [
  ["image/png", /^89504e470d0a1a0a/],
  ["image/jpeg", /^ffd8ff/],
  ["image/gif", /^4749463837|^4749463839/],
  ["image/webp", /^52494646.{8}57454250/],
];

function isText(text: string): boolean {
  return ![...text.slice(0, 4096)].some((letter) => letter < " " && !"\t\n\r\f".includes(letter));
}

/** URLs of the bytes of the view that is shown. */
const urls: string[] = [];

function urlOf(bytes: Uint8Array, type: string): string {
  const url = URL.createObjectURL(new Blob([bytes as BlobPart], { type }));
  urls.push(url);
  return url;
}

/** Forget the bytes of a view that is left. */
export function forgetBytes(): void {
  for (const url of urls.splice(0)) URL.revokeObjectURL(url);
}

/** Show bytes as an image, as text, or as hexadecimal digits. */
export function preview(bytes: Uint8Array): HTMLElement {
  const start = toHex(bytes.subarray(0, 16));
  const image = IMAGES.find(([, magic]) => magic.test(start));
  if (image !== undefined) {
    return h("img", { src: urlOf(bytes, image[0]), alt: "Preview of the payload", class: "preview" });
  }
  const text = fromUtf8(bytes.subarray(0, bytes.length));
  if (text !== null && isText(text)) {
    const cut = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n…` : text;
    return h("pre", { class: "preview", tabindex: "0", "aria-label": "Preview as text" }, cut);
  }
  const digits = toHex(bytes.subarray(0, MAX_HEX))
    .replace(/(..)/g, "$1 ")
    .replace(/(.{48})/g, "$1\n");
  const label = `First bytes of ${bytesText(bytes.length)}`;
  return h(
    "pre",
    { class: "preview", tabindex: "0", "aria-label": label },
    digits,
    bytes.length > MAX_HEX ? "\n…" : "",
  );
}

/** A link that saves bytes under a name, never to be opened by the browser. */
export function download(bytes: Uint8Array, name: string): HTMLElement {
  return h(
    "a",
    { href: urlOf(bytes, "application/octet-stream"), download: name, class: "button" },
    `Save ${name} (${bytesText(bytes.length)})`,
  );
}
