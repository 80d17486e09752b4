// Strip of a lane's slices: three rows of pixels for its upper part, its lower part, and the edge
// below. They are copied to the lane's height afterwards, so a hundred thousand slices cost a
// hundred thousand writes to memory.

import { mix, mixParts, type Packed, type Palette, type Shade } from "./colours";
import type { LaneView } from "./lane_renderer";
import type { Picture } from "./picture";
import { Tiles, type Tile } from "../data/tiles";
import { Style, type LaneKind } from "../data/wire";

/** Share of a lane's height that the upper row takes. */
export const UPPER_SHARE = 0.6;
/** Rows of a strip. */
const ROWS = 3;
/** Height of the edge in pixels, in lanes taller than `TALL`; it is one pixel in others. */
const EDGE = 1.5;
const TALL = 8;

/** Set of styles as a table, since each slice looks into it. */
function styleSet(...styles: number[]): Uint8Array {
  const table = new Uint8Array(256);
  for (const style of styles) table[style] = 1;
  return table;
}

/** States in which a thread does nothing: only the lower part is drawn. */
const LOW = styleSet(Style.sleeping, Style.uninterruptible, Style.stopped, Style.created, Style.unknown);
const NAMED = styleSet(Style.span, Style.function);
/** On lanes other than a thread's, running slices have their name's colour, too. */
const NAMED_RUNNING = styleSet(Style.span, Style.function, Style.running);

/** Whether a slice has the colour of its name. */
export function hasNameColour(kind: LaneKind, style: number): boolean {
  return style === Style.mark || (kind === "thread" ? NAMED : NAMED_RUNNING)[style] === 1;
}

/** Colour of a single event, by the colour of its name. */
export function markColour(palette: Palette, name: Packed): Packed {
  return mix(name, palette.packed[Style.mark] ?? name, 0.35);
}

const HATCHED = styleSet(Style.lost, Style.overwritten, Style.unknown);
/** Styles with stripes or teeth, which have labels nevertheless. */
const MARKED = styleSet(Style.runnablePreempted, Style.lateJob);
/** Narrowest slice that gets stripes or teeth, in pixels. */
const MIN_MARKED = 4;
/** Styles of which even narrow slices need more than a colour. */
const ELABORATE = styleSet(Style.lost, Style.overwritten, Style.unknown, Style.mark);
/** Smallest share of a pixel that a narrow slice gets: what explains lateness must not vanish. */
const MIN_SHARE = new Float64Array(256).fill(0.45);
for (const style of [Style.span, Style.function, Style.job]) MIN_SHARE[style] = 0.55;
for (const style of [Style.interrupt, Style.softirq]) MIN_SHARE[style] = 0.75;
for (const style of [Style.runnablePreempted, Style.lateJob]) MIN_SHARE[style] = 0.75;
MIN_SHARE[Style.lost] = 1;
/** Narrowest slice with a label, in pixels. */
const MIN_LABELLED = 26;
/** Most labels in a frame. */
const MAX_LABELS = 1600;

export interface Label {
  x: number;
  width: number;
  label: number;
  colour: Packed;
  low: boolean;
}

export interface Hatch {
  x: number;
  width: number;
  style: number;
}

/** Labels and hatches to draw over a lane's strip. */
export interface Decor {
  labels: Label[];
  hatches: Hatch[];
}

export class SliceStrip {
  private pixels = new Uint32Array(0);
  private width = 0;
  private labels = 0;

  /** Begins a frame of this width. */
  begin(width: number): void {
    if (this.width !== width) this.pixels = new Uint32Array(ROWS * width);
    this.width = width;
    this.labels = 0;
  }

  /** Paints a lane's slices into the strip. */
  paint(lane: LaneView): Decor {
    for (let row = 0; row < ROWS; row++) this.pixels.set(lane.ground, row * this.width);
    const painter = new SlicePainter(this.pixels, lane, MAX_LABELS - this.labels);
    lane.cover((tile, from, to) => painter.tile(tile, from, to));
    this.labels += painter.decor.labels.length;
    return painter.decor;
  }

  /** Copies the strip into the picture. */
  copy(picture: Picture, { top, bottom }: LaneView): void {
    const ratio = devicePixelRatio;
    const high = bottom - top;
    const edge = bottom - Math.max(1, Math.round((high > TALL * ratio ? EDGE : 1) * ratio));
    const middle = Math.min(edge, top + Math.round(high * UPPER_SHARE));
    const row = (at: number): Uint32Array => this.pixels.subarray(at * this.width, (at + 1) * this.width);
    picture.rows(row(0), top, middle);
    picture.rows(row(1), middle, edge);
    picture.rows(row(2), edge, bottom);
  }
}

class SlicePainter {
  readonly decor: Decor = { labels: [], hatches: [] };
  private readonly width: number;
  private readonly palette: Palette;
  private readonly labelColours: Uint8Array;
  private readonly highlighted: number;
  private lastStyle = -1;
  private lastLabel = -1;
  private lastEnd = Number.NEGATIVE_INFINITY;
  /** Whether the lane shows a thread's states. */
  private readonly isThread: boolean;
  /** Copy: to ask the window takes longer than all else that an event needs. */
  private readonly ratio = devicePixelRatio;
  private readonly minLabelled = MIN_LABELLED * this.ratio;
  /** Colour of the edge of the slice that is being painted. */
  private edge: Packed = 0;
  private lastMark = Number.NEGATIVE_INFINITY;
  /** Shade of events that are too dense to be told apart. */
  private readonly denseMark: Packed;

  constructor(
    private readonly pixels: Uint32Array,
    private readonly lane: LaneView,
    private readonly maxLabels: number,
  ) {
    const { palette, slot, tiles, highlighted, ground } = lane;
    this.width = ground.length;
    this.palette = palette;
    this.labelColours = tiles.labelColours;
    this.highlighted = highlighted;
    this.isThread = slot.lane.kind === "thread";
    this.denseMark = mix(palette.packed[Style.mark] ?? 0, palette.packed[Style.idle] ?? 0, 0.6);
  }

  tile(tile: Tile, from: number, to: number): void {
    if (tile.shape !== "boxes") return;
    const { begin, scale } = this.lane;
    const { width } = this;
    const { times, styles } = tile;
    const isDimmed = this.highlighted >= 0;
    for (let at = Tiles.firstAfter(tile, from - 1); at < styles.length; at++) {
      const start = Math.max(times[2 * at] ?? 0, from);
      if (start >= to) break;
      const end = Math.min(times[2 * at + 1] ?? 0, to);
      const x0 = (start - begin) * scale;
      const x1 = (end - begin) * scale;
      if (x1 < 0 || x0 >= width) continue;
      // Most slices are narrow and inside their tile. These take some nanoseconds, all others ten
      // times as many.
      const inside = x0 >= 0 && x1 < width && start > tile.from && end < to;
      if (inside && x1 - x0 < 1 && !isDimmed && ELABORATE[styles[at] ?? 0] === 0) this.narrow(tile, at, x0, x1 - x0);
      else this.slice(tile, at, Math.max(0, x0), Math.min(width, x1), start, end);
    }
  }

  /** Paints a slice within one pixel, which is only a colour. */
  private narrow(tile: Tile, at: number, x: number, wide: number): void {
    const style = tile.styles[at] ?? 0;
    if (style === Style.idle) return;
    const { pixels } = this;
    const label = tile.labels[at] ?? -1;
    const shade = this.shadeOf(tile.counts[at] ?? 1);
    const named = label >= 0 && (this.isThread ? NAMED : NAMED_RUNNING)[style] === 1;
    const name = named ? (this.labelColours[label] ?? 0) : -1;
    const colour = (named ? shade.names[name] : shade.packed[style]) ?? 0;
    const edge = (named ? shade.nameEdges[name] : shade.edges[style]) ?? 0;
    const part = (Math.max(wide, MIN_SHARE[style] ?? 0.3) * 256) | 0;
    const upper = x | 0;
    const lower = upper + this.width;
    if (!this.isThread || LOW[style] === 0) pixels[upper] = mixParts(pixels[upper] ?? 0, colour, part);
    pixels[lower] = mixParts(pixels[lower] ?? 0, colour, part);
    const below = lower + this.width;
    pixels[below] = mixParts(pixels[below] ?? 0, edge, part);
  }

  /** Paints any slice. */
  private slice(tile: Tile, at: number, x0: number, x1: number, start: number, end: number): void {
    const style = tile.styles[at] ?? 0;
    const label = tile.labels[at] ?? -1;
    const continues = style === this.lastStyle && label === this.lastLabel && start <= this.lastEnd && this.lastEnd === tile.from;
    this.lastStyle = style;
    this.lastLabel = label;
    this.lastEnd = end;
    if (style === Style.idle) return;
    const colour = this.colourOf(style, label, tile.counts[at] ?? 1);
    this.edge = this.edgeOf(style, label, tile.counts[at] ?? 1, colour);
    const low = this.isThread && LOW[style] === 1;
    const wide = x1 - x0;
    // A sample has no observed begin and end, and no name of its own.
    const isSample = tile.counts[at] === 0;
    if (style === Style.mark) {
      this.mark(x0, x1, label, tile.counts[at] ?? 1, colour);
      return;
    }
    // The seam between two tiles is no edge of the slice.
    this.paint(continues ? Math.floor(x0) : x0, x1, colour, MIN_SHARE[style] ?? 0.3, low, !continues && wide > 4 && !low && !isSample);
    if (MARKED[style] === 1 && wide >= MIN_MARKED && !isSample) this.hatch(x0, wide, style);
    if (HATCHED[style] === 1) this.hatch(x0, wide, style);
    else if (label >= 0 && !isSample && (continues || wide >= this.minLabelled)) this.label(x0, wide, label, colour, low, continues);
  }

  /** Paints an event as a tick. Its name may take the room up to the next one. */
  private mark(x0: number, x1: number, label: number, count: number, colour: Packed): void {
    const labels = this.decor.labels;
    const last = labels.at(-1);
    if (last !== undefined) {
      last.width = Math.min(last.width, x0 - last.x);
      if (last.width < this.minLabelled) labels.pop();
    }
    const near = x0 - this.lastMark < 4 * this.ratio;
    this.lastMark = x1;
    if (count !== 1 || near) {
      this.edge = this.denseMark;
      this.paint(x0, Math.max(x1, x0 + 1), this.denseMark, 0.75, false, false);
      return;
    }
    this.paint(x0, Math.min(this.width, x0 + 2 * this.ratio), colour, 1, false, false);
    if (label >= 0 && labels.length < this.maxLabels) {
      labels.push({ x: x0, width: this.width - x0, label, colour, low: false });
    }
  }

  private hatch(x: number, width: number, style: number): void {
    const last = this.decor.hatches.at(-1);
    const isMissing = style === Style.lost || style === Style.overwritten;
    const least = Math.max(width, isMissing ? 3 * this.ratio : 0);
    const touches = last !== undefined && last.style === style && x <= last.x + last.width + 1;
    // Stripes continue from slice to slice, but each late job has its own teeth.
    if (touches && style !== Style.lateJob) last.width = x + least - last.x;
    else if (least >= 2) this.decor.hatches.push({ x, width: least, style });
  }

  private label(x: number, width: number, label: number, colour: Packed, low: boolean, continues: boolean): void {
    const last = this.decor.labels.at(-1);
    if (continues && last !== undefined && last.label === label && Math.abs(last.x + last.width - x) < 1) {
      last.width += width;
      return;
    }
    if (width < this.minLabelled || this.decor.labels.length >= this.maxLabels) return;
    this.decor.labels.push({ x, width, label, colour, low });
  }

  private shadeOf(count: number): Shade {
    return this.palette.shades[count < 2 ? count : 2] ?? this.palette;
  }

  private colourOf(style: number, label: number, count: number): Packed {
    const { palette } = this;
    if (style === Style.mark) {
      return markColour(palette, palette.names[this.labelColours[label] ?? 0] ?? 0);
    }
    const named = label >= 0 && (this.isThread ? NAMED : NAMED_RUNNING)[style] === 1;
    const shade = this.shadeOf(HATCHED[style] === 1 ? 1 : count);
    if (!named) return shade.packed[style] ?? 0;
    const colour = shade.names[this.labelColours[label] ?? 0] ?? 0;
    return this.highlighted >= 0 && this.highlighted !== label ? mix(colour, palette.packed[Style.idle] ?? 0, 0.62) : colour;
  }

  private edgeOf(style: number, label: number, count: number, colour: Packed): Packed {
    if (style === Style.mark) return colour;
    const shade = this.shadeOf(HATCHED[style] === 1 ? 1 : count);
    const named = label >= 0 && (this.isThread ? NAMED : NAMED_RUNNING)[style] === 1;
    if (!named) return shade.edges[style] ?? colour;
    // The edge is dimmed with the slice.
    return this.highlighted >= 0 && this.highlighted !== label ? colour : (shade.nameEdges[this.labelColours[label] ?? 0] ?? colour);
  }

  private paint(x0: number, x1: number, colour: Packed, least: number, low: boolean, edge: boolean): void {
    const first = Math.floor(x0);
    const last = Math.min(Math.floor(x1), this.width - 1);
    if (first >= this.width) return;
    if (x1 - x0 < 1 || first >= last) {
      this.blend(first, colour, Math.max(x1 - x0, least), low);
      return;
    }
    this.blend(first, colour, edge ? (first + 1 - x0) * 0.55 : first + 1 - x0, low);
    const lower = this.width;
    if (!low) this.pixels.fill(colour, first + 1, last);
    this.pixels.fill(colour, lower + first + 1, lower + last);
    const below = lower + this.width;
    this.pixels.fill(this.edge, below + first + 1, below + last);
    this.blend(last, colour, x1 - last, low);
  }

  private blend(x: number, colour: Packed, share: number, low: boolean): void {
    const upper = x;
    const lower = upper + this.width;
    if (!low) this.pixels[upper] = mix(this.pixels[upper] ?? 0, colour, share);
    this.pixels[lower] = mix(this.pixels[lower] ?? 0, colour, share);
    const below = lower + this.width;
    this.pixels[below] = mix(this.pixels[below] ?? 0, this.edge, share);
  }
}
