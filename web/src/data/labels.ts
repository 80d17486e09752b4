// Table of labels: slices have a number instead of the text.

import { nameColour } from "../draw/colours";

/** Size in bytes above which unused labels are removed. */
const MAX_BYTES = 8 * 1024 * 1024;
/** Bytes that a label takes besides its letters. */
const OVERHEAD = 96;

export class Labels {
  readonly texts: string[] = [];
  /** Colour number of each label. */
  colours = new Uint8Array(1024);
  private readonly numbers = new Map<string, number>();
  private bytes = 0;

  constructor(private maxBytes = MAX_BYTES) {}

  /** Number of a label; −1 if it is unknown. */
  find(text: string): number {
    return this.numbers.get(text) ?? -1;
  }

  /** Number of a label, which is added if it is new. */
  number(text: string): number {
    const known = this.numbers.get(text);
    if (known !== undefined) return known;
    const number = this.texts.length;
    if (number >= this.colours.length) {
      const larger = new Uint8Array(2 * this.colours.length);
      larger.set(this.colours);
      this.colours = larger;
    }
    this.colours[number] = nameColour(text);
    this.texts.push(text);
    this.numbers.set(text, number);
    this.bytes += size(text);
    return number;
  }

  /** Removes unused labels once there are many. The others are renumbered, also in `lists`. */
  removeUnused(lists: () => Iterable<Int32Array>): void {
    if (this.bytes <= this.maxBytes) return;
    const before = this.texts.splice(0);
    this.numbers.clear();
    this.bytes = 0;
    const renumbered = new Int32Array(before.length).fill(-1);
    for (const list of lists()) {
      for (let at = 0; at < list.length; at++) {
        const old = list[at] ?? -1;
        if (old < 0) continue;
        if ((renumbered[old] ?? -1) < 0) renumbered[old] = this.number(before[old] ?? "");
        list[at] = renumbered[old] ?? -1;
      }
    }
    // If most are in use, the next attempt waits until there are twice as many.
    this.maxBytes = Math.max(this.maxBytes, 2 * this.bytes);
  }
}

function size(text: string): number {
  return OVERHEAD + 2 * text.length;
}
