// Draws the timeline: rows, lanes, labels, lines of counters, density with its losses.

import { inkOn, pack, type Palette } from "./colours";
import { Columns, type Run } from "./columns";
import { fitCanvas, context } from "../dom";
import { Picture } from "./picture";
import { scaleOf } from "../data/reading";
import { Strips, UPPER_SHARE, type Decor } from "./strips";
import type { Tile, Tiles } from "../data/tiles";
import { quantity } from "../data/time";
import type { LaneSlot, Row } from "../data/tracks";
import { Style } from "../data/wire";

export const FONT = '11px "Inter", "Segoe UI", system-ui, "Noto Sans", "DejaVu Sans", sans-serif';

/** How deep the teeth of late jobs are, in pixels. */
const TEETH = 5;
/** How thick a counter's line is. */
const LINE = 1.25;
/** Where a counter's line stands at most and at least, from its lane's edges. */
const [ABOVE, BELOW] = [3, 2];

/** A row where it stands on the screen. */
export interface PlacedRow {
  row: Row;
  y: number;
  pinned: boolean;
}

/** What one picture is made of. */
export interface Scene {
  rows: PlacedRow[];
  begin: number;
  end: number;
  width: number;
  height: number;
  /** Where pinned rows end and the tree begins. */
  divider: number;
  palette: Palette;
  tiles: Tiles;
  /** The label whose boxes stand out; −1 for none. */
  lit: number;
  /** The track the keyboard is on. */
  current: number;
  grid: number[];
}

interface BoxLane {
  slot: LaneSlot;
  y: number;
  decor: Decor;
}

/** Where of a channel something is missing. */
interface Missing {
  slot: LaneSlot;
  y: number;
  lost: Run[];
  overwritten: Run[];
}

/** What is drawn over the pixels of some rows, between two heights. */
interface Section {
  top: number;
  bottom: number;
  boxes: BoxLane[];
  missing: Missing[];
  /** Counters of which something is drawn. */
  counters: { slot: LaneSlot; y: number; unit: string }[];
}

export class Painter {
  private readonly picture = new Picture();
  private readonly strips = new Strips();
  private readonly columns = new Columns(this.picture);
  private readonly widths = new Map<string, number>();
  private readonly hatches = new Map<string, CanvasPattern | null>();

  constructor(private readonly canvas: HTMLCanvasElement) {
    // Nothing shows through it, which the browser need not look for.
    canvas.getContext("2d", { alpha: false });
  }

  paint(scene: Scene): void {
    fitCanvas(this.canvas, scene.width, scene.height);
    const { width, height } = this.canvas;
    const marks = scene.grid.map((x) => Math.round(x * devicePixelRatio));
    this.picture.begin(width, height, { at: marks, wide: Math.max(1, Math.round(devicePixelRatio)), colour: pack(scene.palette.line) });
    // Rows stand one below the other, from the top on.
    const end = scene.rows.reduce((most, { row, y }) => Math.max(most, y + row.height), 0);
    this.picture.rows(this.picture.ground(pack(scene.palette.ground)), device(end), height);
    this.strips.begin(width);
    const sections = [this.section(scene, scene.rows.filter((row) => !row.pinned), scene.divider, scene.height)];
    const pinned = scene.rows.filter((row) => row.pinned);
    if (pinned.length > 0) sections.push(this.section(scene, pinned, 0, scene.divider));
    const drawing = context(this.canvas);
    this.picture.put(drawing);
    for (const section of sections) this.over(drawing, scene, section);
  }

  /** Draws the pixels of some rows. */
  private section(scene: Scene, rows: PlacedRow[], top: number, bottom: number): Section {
    const section: Section = { top, bottom, boxes: [], missing: [], counters: [] };
    this.picture.clipTo({ top: device(top), bottom: device(bottom) });
    const line = new Uint32Array(this.picture.width).fill(pack(scene.palette.line));
    for (const { row, y } of rows) {
      const ground = this.picture.ground(pack(groundOf(scene, row)));
      this.picture.rows(ground, device(y), device(y + row.height));
      this.picture.rows(line, device(y + row.height - 1), device(y + row.height));
      for (const slot of row.slots) this.lane(scene, section, ground, { slot, y: y + slot.y, unit: row.track.unit });
    }
    return section;
  }

  private lane(scene: Scene, section: Section, ground: Uint32Array, { slot, y, unit }: Section["counters"][number]): void {
    const { id, kind } = slot.lane;
    const { palette, tiles } = scene;
    const { width } = this.picture;
    const scale = width / (scene.end - scene.begin);
    const cover = (visit: (tile: Tile, from: number, to: number) => void): void => tiles.cover(id, scene.begin, scene.end, 1 / scale, visit);
    const place = { top: device(y), bottom: device(y + slot.height), begin: scene.begin, scale };
    if (kind === "counter") {
      const share = scaleOf(slot.lane);
      const ratio = devicePixelRatio;
      const height = (value: number): number => (y + slot.height - BELOW - share(value) * (slot.height - ABOVE - BELOW)) * ratio;
      const look = { colour: pack(palette.counter), thick: Math.max(1, Math.round(LINE * ratio)), tint: palette.counterTint };
      if (this.columns.counter(place, cover, height, look)) section.counters.push({ slot, y, unit });
    } else if (kind === "density") {
      section.missing.push({ slot, y, ...this.columns.density(place, cover, pack(palette.density)) });
    } else {
      const decor = this.strips.lane(ground, kind, tiles, cover, { begin: scene.begin, scale, width }, palette, scene.lit);
      this.strips.copy(this.picture, place.top, place.bottom, devicePixelRatio);
      section.boxes.push({ slot, y, decor });
    }
  }

  /** Draws what is more than pixels: names, stripes, scales. */
  private over(drawing: CanvasRenderingContext2D, scene: Scene, { top, bottom, boxes, missing, counters }: Section): void {
    drawing.save();
    drawing.beginPath();
    drawing.rect(0, top, scene.width, bottom - top);
    drawing.clip();
    for (const lane of boxes) this.decorate(drawing, scene, lane);
    for (const lane of missing) this.missing(drawing, scene, lane);
    for (const { slot, y, unit } of counters) this.scale(drawing, scene, slot, y, unit);
    drawing.restore();
  }

  private decorate(drawing: CanvasRenderingContext2D, scene: Scene, lane: BoxLane): void {
    const { slot, decor, y } = lane;
    const ratio = devicePixelRatio;
    for (const style of new Set(decor.hatches.map((hatch) => hatch.style))) {
      const low = slot.lane.kind === "thread" && style === Style.unknown;
      const top = low ? Math.round(slot.height * UPPER_SHARE) : 0;
      // Teeth are those of the upper edge.
      const height = style === Style.lateJob ? Math.min(TEETH, slot.height / 2) : slot.height - top;
      drawing.save();
      drawing.translate(0, y);
      drawing.fillStyle = this.hatch(drawing, scene.palette, style);
      for (const hatch of decor.hatches) if (hatch.style === style) drawing.fillRect(hatch.x / ratio, top, hatch.width / ratio, height);
      drawing.restore();
    }
    if (slot.small || slot.height < 12) return;
    drawing.font = FONT;
    drawing.textBaseline = "middle";
    const middle = y + slot.height / 2 + 0.5;
    for (const label of decor.labels) {
      const text = scene.tiles.labels[label.label] ?? "";
      const mark = slot.lane.kind === "marks";
      const x = Math.max(0, label.x / ratio) + (mark ? 4 : 5);
      const room = (label.x + label.width) / ratio - x - 4;
      const shown = this.fitted(drawing, text, room);
      if (shown === "") continue;
      drawing.fillStyle = label.low || mark ? scene.palette.muted : inkOn(label.colour);
      drawing.fillText(shown, x, label.low ? y + slot.height * UPPER_SHARE * 0.5 : middle);
    }
  }

  /** As much of a text as there is room for; nothing, where that says nothing. */
  private fitted(drawing: CanvasRenderingContext2D, text: string, room: number): string {
    const short = text.length > 200 ? text.slice(0, 200) : text;
    let width = this.widths.get(short);
    if (width === undefined) {
      if (this.widths.size > 20_000) this.widths.clear();
      width = drawing.measureText(short).width;
      this.widths.set(short, width);
    }
    if (width <= room) return short;
    const letters = Math.floor((short.length * room) / width) - 1;
    return letters < 2 ? "" : `${short.slice(0, letters)}…`;
  }

  /** What a style is told by beside its colour: stripes from corner to corner, or teeth. */
  hatch(drawing: CanvasRenderingContext2D, palette: Palette, style: number): CanvasPattern | string {
    const name = `${palette.theme}:${style}`;
    const known = this.hatches.get(name);
    if (known !== undefined && known !== null) return known;
    const colour = palette.states[style] ?? palette.lost;
    const tile = new OffscreenCanvas(6, style === Style.lateJob ? TEETH : 6);
    const stripes = tile.getContext("2d");
    if (stripes === null) return colour;
    if (style === Style.lateJob) teeth(stripes, palette.ground);
    else if (style === Style.runnablePreempted) diagonal(stripes, palette.stripes, 1.3, 0.5);
    else {
      stripes.fillStyle = style === Style.lost ? `${colour}55` : `${palette.ground}aa`;
      stripes.fillRect(0, 0, 6, 6);
      diagonal(stripes, colour, style === Style.lost ? 2 : 1.2, 1);
    }
    const pattern = drawing.createPattern(tile as unknown as CanvasImageSource, "repeat");
    this.hatches.set(name, pattern);
    return pattern ?? colour;
  }

  /** Says which values the edges of a counter's lane stand for. */
  private scale(drawing: CanvasRenderingContext2D, scene: Scene, { lane, height }: LaneSlot, top: number, unit: string): void {
    const { min = 0, max = 0 } = lane;
    const told = (value: number): string => `${quantity(value, max - min)}${unit === "" ? "" : ` ${unit}`}`;
    this.scaleLabel(drawing, scene, told(max), top);
    if (min < max) this.scaleLabel(drawing, scene, told(min), top + height - 13);
  }

  private scaleLabel(drawing: CanvasRenderingContext2D, scene: Scene, text: string, top: number): void {
    drawing.font = FONT;
    drawing.textBaseline = "top";
    drawing.fillStyle = scene.palette.ground;
    const width = drawing.measureText(text).width;
    drawing.globalAlpha = 0.8;
    drawing.fillRect(2, top, width + 6, 13);
    drawing.globalAlpha = 1;
    drawing.fillStyle = scene.palette.muted;
    drawing.fillText(text, 5, top + 1);
  }

  private missing(drawing: CanvasRenderingContext2D, scene: Scene, { slot, y, lost, overwritten }: Missing): void {
    const ratio = devicePixelRatio;
    for (const [style, runs] of [[Style.overwritten, overwritten], [Style.lost, lost]] as const) {
      drawing.fillStyle = this.hatch(drawing, scene.palette, style);
      for (const { x, width } of runs) drawing.fillRect(x / ratio, y - 1, width / ratio, slot.height + 1);
    }
  }
}

/** A height of the page in the picture's rows. */
function device(y: number): number {
  return Math.round(y * devicePixelRatio);
}

/** Lines from corner to corner of a pattern. */
function diagonal(drawing: OffscreenCanvasRenderingContext2D, colour: string, width: number, alpha: number): void {
  drawing.strokeStyle = colour;
  drawing.globalAlpha = alpha;
  drawing.lineWidth = width;
  for (const shift of [-6, 0, 6]) {
    drawing.beginPath();
    drawing.moveTo(shift - 1, 7);
    drawing.lineTo(shift + 7, -1);
    drawing.stroke();
  }
}

/** Teeth that are cut into an edge. */
function teeth(drawing: OffscreenCanvasRenderingContext2D, ground: string): void {
  drawing.fillStyle = ground;
  drawing.beginPath();
  drawing.moveTo(0, 0);
  drawing.lineTo(6, 0);
  drawing.lineTo(3, TEETH);
  drawing.fill();
}

/** What a row's boxes lie on. */
function groundOf(scene: Scene, row: Row): string {
  if (row.track.id === scene.current) return scene.palette.current;
  return row.folds ? scene.palette.stripe : scene.palette.ground;
}
