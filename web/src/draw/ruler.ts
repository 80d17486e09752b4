// Ruler above the timeline: times, notes, and selection of a range by dragging.

import type { App } from "../app";
import { byId, context, fitCanvas, setText } from "../dom";
import { FONT } from "./text";
import { CLOCKS, day, digitsFor, duration, moment, rulerFor, type Clock, type Ruler } from "../data/time";
import type { Timeline } from "./timeline";

const HEIGHT = 28;
const NAMES: Record<Clock, string> = { relative: "trace time", local: "wall clock", utc: "UTC" };

export class RulerBar {
  private readonly canvas = byId<HTMLCanvasElement>("ruler");
  private readonly button = byId<HTMLButtonElement>("clock");
  private readonly place = byId("place");

  constructor(
    private readonly app: App,
    private readonly timeline: Timeline,
  ) {
    this.button.addEventListener("click", () => this.nextClock());
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      app.view.zoom(1.0022 ** Math.max(-240, Math.min(240, event.deltaY)), timeline.timeAt(event.offsetX));
    });
  }

  /** Switches to the next clock. */
  nextClock(): void {
    const at = CLOCKS.indexOf(this.app.clock);
    this.app.setClock(CLOCKS[(at + 1) % CLOCKS.length] ?? "relative");
  }

  paint(): void {
    const { app, timeline } = this;
    const { view, palette } = app;
    fitCanvas(this.canvas, timeline.width, HEIGHT);
    const drawing = context(this.canvas);
    drawing.clearRect(0, 0, timeline.width, HEIGHT);
    const zero = app.info.begin;
    const ruler = rulerFor(view.begin, view.end, timeline.width, 130, zero);
    const area = app.area;
    if (area !== null) this.bar(drawing, area.begin, area.end);
    drawing.font = FONT;
    drawing.textBaseline = "middle";
    const minor = ruler.step / 5;
    const first = Math.ceil((view.begin - ruler.anchor) / minor);
    for (let at = first; ruler.anchor + at * minor < view.end; at++) {
      const x = Math.round(timeline.xOf(ruler.anchor + at * minor));
      const major = at % 5 === 0;
      drawing.fillStyle = palette.muted;
      drawing.globalAlpha = major ? 0.9 : 0.35;
      drawing.fillRect(x, major ? HEIGHT - 9 : HEIGHT - 5, 1, major ? 9 : 5);
      drawing.globalAlpha = 1;
      if (major) drawing.fillText(this.text(ruler.anchor + at * minor, ruler.anchor, ruler.step, ruler.short), x + 4, 11);
    }
    this.flags(drawing);
    this.labels(ruler.short ? ruler.anchor : view.begin, ruler);
  }

  private text(time: number, anchor: number, step: number, short: boolean): string {
    if (short) return time === anchor ? "+0" : `+${duration(time - anchor)}`;
    if (this.app.clock === "relative" && step < 1e9) {
      const value = time - this.app.info.begin;
      if (value === 0) return "0";
      if (Math.abs(value) < 1e9 || step >= 1e7) return Math.abs(value) < 1e9 ? duration(value) : moment(this.app.clockBase, "relative", time, digitsFor(step));
    }
    return moment(this.app.clockBase, this.app.clock, time, digitsFor(step));
  }

  /** Writes the anchor of short marks, and the date. */
  private labels(anchor: number, { step, short }: Ruler): void {
    const { app } = this;
    const clock = app.clockBase;
    setText(this.button, NAMES[app.clock]);
    const date = app.clock === "relative" ? "" : day(clock, anchor, app.clock === "utc");
    const digits = Math.min(9, Math.max(3, digitsFor(step * 10)));
    const text = `${date} ${short ? moment(clock, app.clock, anchor, digits) : ""}`.trim();
    setText(this.place, text);
    this.place.hidden = text === "";
  }

  private bar(drawing: CanvasRenderingContext2D, begin: number, end: number): void {
    const [left, right] = [this.timeline.xOf(begin), this.timeline.xOf(end)];
    drawing.fillStyle = this.app.palette.accent;
    drawing.globalAlpha = 0.28;
    drawing.fillRect(left, 0, right - left, HEIGHT);
    drawing.globalAlpha = 1;
  }

  private flags(drawing: CanvasRenderingContext2D): void {
    drawing.fillStyle = this.app.palette.accent;
    for (const note of this.app.notes) {
      const x = this.timeline.xOf(note.time);
      if (x < -10 || x > this.timeline.width + 10) continue;
      drawing.beginPath();
      drawing.moveTo(x, HEIGHT);
      drawing.lineTo(x, HEIGHT - 14);
      drawing.lineTo(x + 9, HEIGHT - 10);
      drawing.lineTo(x, HEIGHT - 6);
      drawing.fill();
    }
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const from = event.offsetX;
    const time = this.timeline.timeAt(from);
    let dragged = false;
    const drag = (now: PointerEvent): void => {
      dragged ||= Math.abs(now.offsetX - from) > 3;
      if (!dragged) return;
      const other = this.timeline.timeAt(now.offsetX);
      this.app.area = { begin: Math.floor(Math.min(time, other)), end: Math.ceil(Math.max(time, other)), all: true, tracks: [] };
      this.app.draw();
    };
    const drop = (): void => {
      this.canvas.removeEventListener("pointermove", drag);
      this.canvas.removeEventListener("pointerup", drop);
      const note = this.app.notes.find((candidate) => Math.abs(this.timeline.xOf(candidate.time) + 4 - from) < 7);
      if (dragged) this.app.setArea(this.app.area);
      else if (note !== undefined) this.app.setTab("notes");
      else this.app.setArea(null);
    };
    this.canvas.addEventListener("pointermove", drag);
    this.canvas.addEventListener("pointerup", drop);
  }
}
