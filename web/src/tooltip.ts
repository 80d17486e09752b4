// What the pointer is over, in two lines beside it.

import type { App } from "./app";
import { styleWord } from "./colours";
import { byId, el, fill, shorten } from "./dom";
import { patch } from "./legend";
import { duration, grouped, moment } from "./time";
import { Style } from "./wire";

const AWAY = 14;

export class Tooltip {
  private readonly root = byId("tooltip");
  private shown = "";

  constructor(private readonly app: App) {}

  /** Shows what is under the pointer now. */
  show(): void {
    const { hover } = this.app;
    if (hover === null || hover.box === null || byId("stage").dataset["drag"] !== undefined) {
      this.root.hidden = true;
      this.shown = "";
      return;
    }
    const { box } = hover;
    const key = `${hover.lane}:${box.begin}:${box.end}:${box.style}`;
    if (key !== this.shown) {
      this.shown = key;
      const word = styleWord(box.style);
      const name = box.label === "" ? word : box.label;
      const title = el("b", {}, patch(this.app, box.style), shorten(name, 90));
      const length = box.end > box.begin ? duration(box.end - box.begin) : "";
      let several = [word === name ? "" : word, length].filter(Boolean).join(", ");
      if (box.count > 1) several = `${grouped(box.count)} in ${length}: zoom in to tell them apart`;
      if (box.count === 0 && box.style === Style.unknown) several = "it began before what was read so far";
      else if (box.count === 0) several = `most of the time at the beginning of these ${length}; the rest is not read yet: zoom in to read it now`;
      fill(this.root, title, el("span", { text: several }), el("small", { text: moment(this.app.clockBase, this.app.clock, box.begin) }));
    }
    this.root.hidden = false;
    const stage = byId("stage").getBoundingClientRect();
    const [width, height] = [this.root.offsetWidth, this.root.offsetHeight];
    const x = Math.min(stage.left + hover.x + AWAY, innerWidth - width - 8);
    const below = stage.top + hover.y + AWAY;
    const y = below + height > innerHeight - 8 ? stage.top + hover.y - AWAY - height : below;
    this.root.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }
}
