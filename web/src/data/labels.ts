// Labels of boxes, each with a number of its own: boxes have the number, not the text.

import { nameColour } from "../draw/colours";

/** So many bytes of labels are kept before those that no box has any more are forgotten. */
const MOST_BYTES = 8 * 1024 * 1024;
/** What a label takes beside its letters. */
const EACH = 96;

export class Labels {
  readonly texts: string[] = [];
  /** By label: the number of its colour. */
  colours = new Uint8Array(1024);
  private readonly numbers = new Map<string, number>();
  private bytes = 0;

  constructor(private most = MOST_BYTES) {}

  /** The number of a label; −1, if there is none such. */
  find(text: string): number {
    return this.numbers.get(text) ?? -1;
  }

  /** The number of a label, which it is given where it has none. */
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

  /** Where there are many, forgets those that no box has: the others get other numbers, which
   * these lists of them have then. */
  forget(lists: () => Iterable<Int32Array>): void {
    if (this.bytes <= this.most) return;
    const before = this.texts.splice(0);
    this.numbers.clear();
    this.bytes = 0;
    const fresh = new Int32Array(before.length).fill(-1);
    for (const list of lists()) {
      for (let at = 0; at < list.length; at++) {
        const old = list[at] ?? -1;
        if (old < 0) continue;
        if ((fresh[old] ?? -1) < 0) fresh[old] = this.number(before[old] ?? "");
        list[at] = fresh[old] ?? -1;
      }
    }
    // Where boxes have so many, to look for others with each answer would be in vain.
    this.most = Math.max(this.most, 2 * this.bytes);
  }
}

function size(text: string): number {
  return EACH + 2 * text.length;
}
