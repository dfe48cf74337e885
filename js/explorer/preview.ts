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

/** Show bytes as an image, as text, or as hexadecimal digits. */
export function preview(bytes: Uint8Array): HTMLElement {
  const start = toHex(bytes.subarray(0, 16));
  const image = IMAGES.find(([, magic]) => magic.test(start));
  if (image !== undefined) {
    const url = URL.createObjectURL(new Blob([bytes as BlobPart], { type: image[0] }));
    return h("img", { src: url, alt: "Preview of the payload", class: "preview" });
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
  const url = URL.createObjectURL(new Blob([bytes as BlobPart], { type: "application/octet-stream" }));
  return h("a", { href: url, download: name, class: "button" }, `Save ${name} (${bytesText(bytes.length)})`);
}
