/** The two lists beside the content: what this page verified, and what it was merely told. */

import { h } from "./dom.ts";
import type { Source } from "./source.ts";

type Item = string | Node;

/** What is known in one view. A view that was left keeps writing to its own lists, which nobody sees any more. */
export class Ledger {
  readonly verifiedList = h("ul", { id: "verified", "aria-live": "polite" });
  readonly toldList = h("ul", { id: "told", "aria-live": "polite" });

  /** Note a statement that a proof or a digest showed to be true of the root or CID. Returns its entry. */
  verified(...items: Item[]): HTMLElement {
    return this.verifiedList.appendChild(h("li", {}, ...items));
  }

  /** Note a statement that nothing proves. Returns its entry. */
  told(...items: Item[]): HTMLElement {
    return this.toldList.appendChild(h("li", {}, ...items));
  }
}

/** One view: where its answers come from, its content, and what is known in it. */
export interface View {
  readonly source: Source;
  readonly main: HTMLElement;
  readonly ledger: Ledger;
}
