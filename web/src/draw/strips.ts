// Boxes are drawn into a strip: three rows of pixels for a lane, which are copied to the lane's
// height afterwards: its upper and its lower part, and the edge below them. So a hundred thousand
// boxes cost a hundred thousand writes to memory.

import { mix, mixParts, type Packed, type Palette, type Shade } from "./colours";
import type { Picture } from "./picture";
import { Tiles, type Tile } from "../data/tiles";
import { Style, type LaneKind } from "../data/wire";

/** What of a lane's height the upper row stands for. */
export const UPPER_SHARE = 0.6;
/** Rows of a strip. */
const ROWS = 3;
/** Height of the edge in pixels, of lanes that are taller than this many. */
const EDGE = 1.5;
const TALL = 8;

/** A table by style, since this is asked for each box. */
function table(...styles: number[]): Uint8Array {
  const made = new Uint8Array(256);
  for (const style of styles) made[style] = 1;
  return made;
}

/** States that are drawn low: the thread does nothing there. */
const LOW = table(Style.sleeping, Style.uninterruptible, Style.stopped, Style.created, Style.unknown);
const NAMED = table(Style.span, Style.function);
/** On lanes that are no thread's, what runs has its name's colour, too. */
const NAMED_RUNNING = table(Style.span, Style.function, Style.running);
/** Whether a box of a lane has its name's colour. */
export function hasNameColour(kind: LaneKind, style: number): boolean {
  return style === Style.mark || (kind === "thread" ? NAMED : NAMED_RUNNING)[style] === 1;
}

/** The colour of a single event, of the colour of its name. */
export function markColour(palette: Palette, name: Packed): Packed {
  return mix(name, palette.packed[Style.mark] ?? name, 0.35);
}

const HATCHED = table(Style.lost, Style.overwritten, Style.unknown);
/** Stripes and teeth tell these without their colour, and don't keep them from having names. */
const MARKED = table(Style.runnablePreempted, Style.lateJob);
/** Boxes narrower than this in pixels get none. */
const MARKED_FROM = 4;
/** Of these, more is to be drawn than a colour, be they narrow. */
const ODD = table(Style.lost, Style.overwritten, Style.unknown, Style.mark);
/** How much of a pixel a box gets that is narrower: what explains lateness must not vanish. */
const LEAST = new Float64Array(256).fill(0.45);
for (const style of [Style.span, Style.function, Style.job]) LEAST[style] = 0.55;
for (const style of [Style.interrupt, Style.softirq]) LEAST[style] = 0.75;
for (const style of [Style.runnablePreempted, Style.lateJob]) LEAST[style] = 0.75;
LEAST[Style.lost] = 1;
/** Boxes narrower than this in pixels get no label. */
const LABEL_FROM = 26;
const MOST_LABELS = 1600;

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

/** What is left to draw on a lane after its strip. */
export interface Decor {
  labels: Label[];
  hatches: Hatch[];
}

interface Stretch {
  begin: number;
  /** Device pixels for each nanosecond. */
  scale: number;
  width: number;
}

export class Strips {
  private pixels = new Uint32Array(0);
  private width = 0;
  private labels = 0;

  /** Begins a picture so wide. */
  begin(width: number): void {
    if (this.width !== width) this.pixels = new Uint32Array(ROWS * width);
    this.width = width;
    this.labels = 0;
  }

  /** Draws one lane's boxes into the strip, on a ground of one row. */
  lane(
    ground: Uint32Array,
    kind: LaneKind,
    tiles: Tiles,
    cover: (visit: (tile: Tile, from: number, to: number) => void) => void,
    stretch: Stretch,
    palette: Palette,
    lit: number,
  ): Decor {
    for (let row = 0; row < ROWS; row++) this.pixels.set(ground, row * this.width);
    const decor: Decor = { labels: [], hatches: [] };
    const painter = new LanePainter(this.pixels, stretch, kind, tiles, palette, lit, decor);
    painter.roomForLabels = MOST_LABELS - this.labels;
    cover((tile, from, to) => painter.tile(tile, from, to));
    this.labels += decor.labels.length;
    return decor;
  }

  /** Copies the strip into the picture, between two of its rows; `ratio` is how many of them a
   * pixel of the page has. */
  copy(picture: Picture, top: number, bottom: number, ratio: number): void {
    const high = bottom - top;
    const edge = bottom - Math.max(1, Math.round((high > TALL * ratio ? EDGE : 1) * ratio));
    const middle = Math.min(edge, top + Math.round(high * UPPER_SHARE));
    const row = (at: number): Uint32Array => this.pixels.subarray(at * this.width, (at + 1) * this.width);
    picture.rows(row(0), top, middle);
    picture.rows(row(1), middle, edge);
    picture.rows(row(2), edge, bottom);
  }
}

class LanePainter {
  roomForLabels = 0;
  private lastStyle = -1;
  private lastLabel = -1;
  private lastEnd = Number.NEGATIVE_INFINITY;
  private readonly states: boolean;
  /** To ask the window for it takes longer than all else that a moment needs. */
  private readonly ratio = devicePixelRatio;
  private readonly labelFrom = LABEL_FROM * this.ratio;
  /** The colour of the edge of what is being painted. */
  private edge: Packed = 0;
  private lastMark = Number.NEGATIVE_INFINITY;
  /** What is too dense to be told apart has one shade; single events have the colours of their
   * names. */
  private readonly shade: Packed;

  constructor(
    private readonly pixels: Uint32Array,
    private readonly stretch: Stretch,
    kind: LaneKind,
    private readonly tiles: Tiles,
    private readonly palette: Palette,
    private readonly lit: number,
    private readonly decor: Decor,
  ) {
    this.states = kind === "thread";
    this.shade = mix(palette.packed[Style.mark] ?? 0, palette.packed[Style.idle] ?? 0, 0.6);
  }

  tile(tile: Tile, from: number, to: number): void {
    if (tile.shape !== "boxes") return;
    const { begin, scale, width } = this.stretch;
    const { times, styles } = tile;
    const isDimmed = this.lit >= 0;
    for (let at = Tiles.firstAfter(tile, from - 1); at < styles.length; at++) {
      const start = Math.max(times[2 * at] ?? 0, from);
      if (start >= to) break;
      const end = Math.min(times[2 * at + 1] ?? 0, to);
      const x0 = (start - begin) * scale;
      const x1 = (end - begin) * scale;
      if (x1 < 0 || x0 >= width) continue;
      // Most boxes are narrow ones inside of their tile; each takes some nanoseconds here, and ten
      // times as many below.
      const inside = x0 >= 0 && x1 < width && start > tile.from && end < to;
      if (inside && x1 - x0 < 1 && !isDimmed && ODD[styles[at] ?? 0] === 0) this.narrow(tile, at, x0, x1 - x0);
      else this.box(tile, at, Math.max(0, x0), Math.min(width, x1), start, end);
    }
  }

  /** A box within a pixel, of which nothing but a colour is to be drawn. */
  private narrow(tile: Tile, at: number, x: number, wide: number): void {
    const style = tile.styles[at] ?? 0;
    if (style === Style.idle) return;
    const { pixels } = this;
    const label = tile.labels[at] ?? -1;
    const shade = this.shadeOf(tile.counts[at] ?? 1);
    const named = label >= 0 && (this.states ? NAMED : NAMED_RUNNING)[style] === 1;
    const name = named ? (this.tiles.labelColours[label] ?? 0) : -1;
    const colour = (named ? shade.names[name] : shade.packed[style]) ?? 0;
    const edge = (named ? shade.nameEdges[name] : shade.edges[style]) ?? 0;
    const part = (Math.max(wide, LEAST[style] ?? 0.3) * 256) | 0;
    const upper = x | 0;
    const lower = upper + this.stretch.width;
    if (!this.states || LOW[style] === 0) pixels[upper] = mixParts(pixels[upper] ?? 0, colour, part);
    pixels[lower] = mixParts(pixels[lower] ?? 0, colour, part);
    const below = lower + this.stretch.width;
    pixels[below] = mixParts(pixels[below] ?? 0, edge, part);
  }

  private box(tile: Tile, at: number, x0: number, x1: number, start: number, end: number): void {
    const style = tile.styles[at] ?? 0;
    const label = tile.labels[at] ?? -1;
    const going = style === this.lastStyle && label === this.lastLabel && start <= this.lastEnd && this.lastEnd === tile.from;
    this.lastStyle = style;
    this.lastLabel = label;
    this.lastEnd = end;
    if (style === Style.idle) return;
    const colour = this.colourOf(style, label, tile.counts[at] ?? 1);
    this.edge = this.edgeOf(style, label, tile.counts[at] ?? 1, colour);
    const low = this.states && LOW[style] === 1;
    const wide = x1 - x0;
    // What stands for none is no box that begins and ends there, and has no name of its own.
    const isSample = tile.counts[at] === 0;
    if (style === Style.mark) {
      this.mark(x0, x1, label, tile.counts[at] ?? 1, colour);
      return;
    }
    // The seam between two tiles is none of the box's edges.
    this.paint(going ? Math.floor(x0) : x0, x1, colour, LEAST[style] ?? 0.3, low, !going && wide > 4 && !low && !isSample);
    if (MARKED[style] === 1 && wide >= MARKED_FROM && !isSample) this.hatch(x0, wide, style);
    if (HATCHED[style] === 1) this.hatch(x0, wide, style);
    else if (label >= 0 && !isSample && (going || wide >= this.labelFrom)) this.label(x0, wide, label, colour, low, going);
  }

  /** A moment has no width: it is drawn as a tick, and its name has the room up to the next one. */
  private mark(x0: number, x1: number, label: number, count: number, colour: Packed): void {
    const labels = this.decor.labels;
    const last = labels.at(-1);
    if (last !== undefined) {
      last.width = Math.min(last.width, x0 - last.x);
      if (last.width < this.labelFrom) labels.pop();
    }
    const near = x0 - this.lastMark < 4 * this.ratio;
    this.lastMark = x1;
    if (count !== 1 || near) {
      this.edge = this.shade;
      this.paint(x0, Math.max(x1, x0 + 1), this.shade, 0.75, false, false);
      return;
    }
    this.paint(x0, Math.min(this.stretch.width, x0 + 2 * this.ratio), colour, 1, false, false);
    if (label >= 0 && labels.length < this.roomForLabels) {
      labels.push({ x: x0, width: this.stretch.width - x0, label, colour, low: false });
    }
  }

  private hatch(x: number, width: number, style: number): void {
    const last = this.decor.hatches.at(-1);
    const isMissing = style === Style.lost || style === Style.overwritten;
    const least = Math.max(width, isMissing ? 3 * this.ratio : 0);
    const touches = last !== undefined && last.style === style && x <= last.x + last.width + 1;
    // Stripes go on from box to box: two late jobs side by side have their own.
    if (touches && style !== Style.lateJob) last.width = x + least - last.x;
    else if (least >= 2) this.decor.hatches.push({ x, width: least, style });
  }

  private label(x: number, width: number, label: number, colour: Packed, low: boolean, going: boolean): void {
    const last = this.decor.labels.at(-1);
    if (going && last !== undefined && last.label === label && Math.abs(last.x + last.width - x) < 1) {
      last.width += width;
      return;
    }
    if (width < this.labelFrom || this.decor.labels.length >= this.roomForLabels) return;
    this.decor.labels.push({ x, width, label, colour, low });
  }

  private shadeOf(count: number): Shade {
    return this.palette.shades[count < 2 ? count : 2] ?? this.palette;
  }

  private colourOf(style: number, label: number, count: number): Packed {
    const { palette } = this;
    if (style === Style.mark) {
      return markColour(palette, palette.names[this.tiles.labelColours[label] ?? 0] ?? 0);
    }
    const named = label >= 0 && (this.states ? NAMED : NAMED_RUNNING)[style] === 1;
    const shade = this.shadeOf(HATCHED[style] === 1 ? 1 : count);
    if (!named) return shade.packed[style] ?? 0;
    const colour = shade.names[this.tiles.labelColours[label] ?? 0] ?? 0;
    return this.lit >= 0 && this.lit !== label ? mix(colour, palette.packed[Style.idle] ?? 0, 0.62) : colour;
  }

  private edgeOf(style: number, label: number, count: number, colour: Packed): Packed {
    if (style === Style.mark) return colour;
    const shade = this.shadeOf(HATCHED[style] === 1 ? 1 : count);
    const named = label >= 0 && (this.states ? NAMED : NAMED_RUNNING)[style] === 1;
    if (!named) return shade.edges[style] ?? colour;
    // What is dimmed is so with its edge.
    return this.lit >= 0 && this.lit !== label ? colour : (shade.nameEdges[this.tiles.labelColours[label] ?? 0] ?? colour);
  }

  private paint(x0: number, x1: number, colour: Packed, least: number, low: boolean, edge: boolean): void {
    const first = Math.floor(x0);
    const last = Math.min(Math.floor(x1), this.stretch.width - 1);
    if (first >= this.stretch.width) return;
    if (x1 - x0 < 1 || first >= last) {
      this.blend(first, colour, Math.max(x1 - x0, least), low);
      return;
    }
    this.blend(first, colour, edge ? (first + 1 - x0) * 0.55 : first + 1 - x0, low);
    const lower = this.stretch.width;
    if (!low) this.pixels.fill(colour, first + 1, last);
    this.pixels.fill(colour, lower + first + 1, lower + last);
    const below = lower + this.stretch.width;
    this.pixels.fill(this.edge, below + first + 1, below + last);
    this.blend(last, colour, x1 - last, low);
  }

  private blend(x: number, colour: Packed, share: number, low: boolean): void {
    const upper = x;
    const lower = upper + this.stretch.width;
    if (!low) this.pixels[upper] = mix(this.pixels[upper] ?? 0, colour, share);
    this.pixels[lower] = mix(this.pixels[lower] ?? 0, colour, share);
    const below = lower + this.stretch.width;
    this.pixels[below] = mix(this.pixels[below] ?? 0, this.edge, share);
  }
}
