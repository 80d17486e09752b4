// Tooltip for the slice or value at the pointer.

import type { App, Hover } from "../app";
import { styleWord } from "../draw/colours";
import { byId, el, fill, shorten } from "../dom";
import { patch, patchOf } from "./legend";
import { amountsText, type Reading, valueText } from "../data/reading";
import { duration, grouped, moment, quantity } from "../data/time";
import { Style } from "../data/wire";

/** Distance from the pointer, in pixels. */
const DISTANCE = 14;

export class Tooltip {
  private readonly root = byId("tooltip");
  private shown = "";

  constructor(private readonly app: App) {}

  /** Shows the slice or value at the pointer. */
  show(): void {
    const { hover, view } = this.app;
    // Nothing can be read during a movement.
    if (view.moving && !this.root.hidden) return;
    if (hover === null || (hover.slice === null && hover.reading === null) || byId("stage").dataset["drag"] !== undefined) {
      this.root.hidden = true;
      this.shown = "";
      return;
    }
    if (hover.slice !== null) this.slice(hover.lane, hover.slice);
    else if (hover.reading !== null) this.reading(hover.lane, hover.time, hover.reading);
    this.place(hover);
  }

  private slice(lane: number, slice: NonNullable<Hover["slice"]>): void {
    const key = `${this.app.theme}:${lane}:${slice.begin}:${slice.end}:${slice.style}`;
    if (key !== this.shown) {
      this.shown = key;
      const word = styleWord(slice.style);
      const name = slice.label === "" ? word : slice.label;
      const title = el("b", {}, patchOf(this.app, lane, slice.style, slice.label), el("span", { class: "name", text: shorten(name, 90) }));
      const length = slice.end > slice.begin ? duration(slice.end - slice.begin) : "";
      let several = [word === name ? "" : word, length].filter(Boolean).join(", ");
      if (slice.count > 1) several = `${grouped(slice.count)} slices in ${length}: zoom in to separate them`;
      if (slice.count === 0 && slice.style === Style.unknown) several = "it began before the part that is read so far";
      else if (slice.count === 0) several = `state at the start of these ${length}; the rest is not read yet: zoom in to read it now`;
      fill(this.root, title, el("span", { text: several }), el("small", { text: moment(this.app.clockBase, this.app.clock, slice.begin) }));
    }
  }

  /** Shows the value of a counter or the event counts of a channel. */
  private reading(lane: number, time: number, reading: Reading): void {
    const { tracks, clockBase, clock } = this.app;
    const track = tracks.all.get(tracks.laneTrack.get(lane) ?? -1);
    const { min = 0, max = 0 } = tracks.laneKind.get(lane) ?? {};
    const when = reading.shape === "points" ? time : reading.begin;
    const key = `${this.app.theme}:${lane}:${Math.round(when)}:${JSON.stringify(reading)}`;
    if (key === this.shown) return;
    this.shown = key;
    const lines: string[] = [];
    let style: number = Style.counter;
    if (reading.shape === "points") {
      lines.push(valueText(reading.value, [min, max], track?.unit ?? ""));
      if (reading.most > reading.least) lines.push(`within this pixel ${quantity(reading.least, max - min)} … ${quantity(reading.most, max - min)}`);
    } else {
      style = reading.lost > 0 ? Style.lost : reading.overwritten > 0 ? Style.overwritten : Style.density;
      lines.push(amountsText(reading), `in ${duration(reading.end - reading.begin)}${style === Style.density ? "" : "; click for details"}`);
    }
    const title = el("b", {}, patch(this.app, style), el("span", { class: "name", text: shorten(track?.name ?? "", 90) }));
    const texts = lines.map((text) => el("span", { text }));
    fill(this.root, title, ...texts, el("small", { text: moment(clockBase, clock, Math.round(when)) }));
  }

  private place(hover: Hover): void {
    this.root.hidden = false;
    const stage = byId("stage").getBoundingClientRect();
    const [width, height] = [this.root.offsetWidth, this.root.offsetHeight];
    const x = Math.min(stage.left + hover.x + DISTANCE, innerWidth - width - 8);
    const below = stage.top + hover.y + DISTANCE;
    const y = below + height > innerHeight - 8 ? stage.top + hover.y - DISTANCE - height : below;
    this.root.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }
}
