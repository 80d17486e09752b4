// Draws the timeline: rows, lanes, labels, lines of counters, density with its losses.

import { inkOn, mix, pack, type Palette } from "./colours";
import { fitCanvas, context } from "./dom";
import { collectBins, scaleOf } from "./reading";
import { Strips, UPPER_SHARE, type Decor } from "./strips";
import type { Tile, Tiles } from "./tiles";
import { quantity } from "./time";
import type { LaneSlot, Row } from "./tracks";
import { Style } from "./wire";

export const FONT = '11px "Inter", "Segoe UI", system-ui, "Noto Sans", "DejaVu Sans", sans-serif';

/** How deep the teeth of late jobs are, in pixels. */
const TEETH = 5;

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
  row: Row;
  slot: LaneSlot;
  y: number;
  decor: Decor;
  pinned: boolean;
}

export class Painter {
  private readonly strips = new Strips();
  private readonly widths = new Map<string, number>();
  private readonly hatches = new Map<string, CanvasPattern | null>();

  constructor(private readonly canvas: HTMLCanvasElement) {
    // Nothing shows through it, which the browser need not look for.
    canvas.getContext("2d", { alpha: false });
  }

  paint(scene: Scene): void {
    fitCanvas(this.canvas, scene.width, scene.height);
    const drawing = context(this.canvas);
    drawing.imageSmoothingEnabled = false;
    drawing.fillStyle = scene.palette.ground;
    drawing.fillRect(0, 0, scene.width, scene.height);
    this.background(drawing, scene);
    const pinned = scene.rows.filter((row) => row.pinned);
    this.section(drawing, scene, scene.rows.filter((row) => !row.pinned), scene.divider, scene.height);
    if (pinned.length > 0) this.section(drawing, scene, pinned, 0, scene.divider);
  }

  private background(drawing: CanvasRenderingContext2D, scene: Scene): void {
    const { palette } = scene;
    for (const { row, y, pinned } of scene.rows) {
      const top = pinned ? y : Math.max(y, scene.divider);
      const bottom = y + row.height;
      if (bottom <= top) continue;
      drawing.fillStyle = groundOf(scene, row);
      drawing.fillRect(0, top, scene.width, bottom - top);
      drawing.fillStyle = palette.line;
      drawing.fillRect(0, bottom - 1, scene.width, 1);
    }
    drawing.fillStyle = palette.line;
    drawing.globalAlpha = 0.7;
    for (const x of scene.grid) drawing.fillRect(Math.round(x), 0, 1, scene.height);
    drawing.globalAlpha = 1;
  }

  private section(drawing: CanvasRenderingContext2D, scene: Scene, rows: PlacedRow[], top: number, bottom: number): void {
    drawing.save();
    drawing.beginPath();
    drawing.rect(0, top, scene.width, bottom - top);
    drawing.clip();
    const boxes = this.fillStrips(scene, rows);
    boxes.forEach((lane, at) => this.strips.draw(drawing, at, lane.y, lane.slot.height, scene.width));
    for (const lane of boxes) this.decorate(drawing, scene, lane);
    for (const { row, y } of rows) {
      for (const slot of row.slots) {
        if (slot.lane.kind === "counter") this.counter(drawing, scene, slot, y + slot.y, row.track.unit);
        else if (slot.lane.kind === "density") this.density(drawing, scene, slot, y + slot.y);
      }
    }
    drawing.restore();
  }

  private fillStrips(scene: Scene, rows: PlacedRow[]): BoxLane[] {
    const lanes: BoxLane[] = [];
    for (const { row, y, pinned } of rows) {
      for (const slot of row.slots) {
        if (slot.lane.kind === "counter" || slot.lane.kind === "density") continue;
        lanes.push({ row, slot, y: y + slot.y, decor: { labels: [], hatches: [] }, pinned });
      }
    }
    const width = Math.max(1, Math.round(scene.width * devicePixelRatio));
    const stretch = { begin: scene.begin, scale: width / (scene.end - scene.begin), width };
    this.strips.begin(width, lanes.length);
    const marks = scene.grid.map((x) => Math.round(x) * Math.round(devicePixelRatio));
    const perPixel = (scene.end - scene.begin) / width;
    lanes.forEach((lane, at) => {
      const { id, kind } = lane.slot.lane;
      const ground = pack(groundOf(scene, lane.row));
      this.strips.ground(at, ground, marks, mix(ground, pack(scene.palette.line), 0.7));
      const cover = (visit: (tile: Tile, from: number, to: number) => void): void =>
        scene.tiles.cover(id, scene.begin, scene.end, perPixel, visit);
      lane.decor = this.strips.lane(at, kind, scene.tiles, cover, stretch, scene.palette, scene.lit);
    });
    this.strips.finish(lanes.length);
    return lanes;
  }

  private decorate(drawing: CanvasRenderingContext2D, scene: Scene, lane: BoxLane): void {
    const { slot, decor, y } = lane;
    const ratio = devicePixelRatio;
    for (const style of new Set(decor.hatches.map((hatch) => hatch.style))) {
      const low = slot.lane.kind === "thread" && style === Style.unknown;
      const top = low ? Math.round(slot.height * UPPER_SHARE) : 0;
      // Teeth are those of the upper edge.
      const height = style === Style.jobLate ? Math.min(TEETH, slot.height / 2) : slot.height - top;
      const shape = new Path2D();
      for (const hatch of decor.hatches) if (hatch.style === style) shape.rect(hatch.x / ratio, top, hatch.width / ratio, height);
      drawing.save();
      drawing.translate(0, y);
      drawing.fillStyle = this.hatch(drawing, scene.palette, style);
      drawing.fill(shape);
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
    const tile = new OffscreenCanvas(6, style === Style.jobLate ? TEETH : 6);
    const stripes = tile.getContext("2d");
    if (stripes === null) return colour;
    if (style === Style.jobLate) teeth(stripes, palette.ground);
    else if (style === Style.readyPreempted) diagonal(stripes, palette.stripes, 1.3, 0.5);
    else {
      stripes.fillStyle = style === Style.lost ? `${colour}55` : `${palette.ground}aa`;
      stripes.fillRect(0, 0, 6, 6);
      diagonal(stripes, colour, style === Style.lost ? 2 : 1.2, 1);
    }
    const pattern = drawing.createPattern(tile as unknown as CanvasImageSource, "repeat");
    this.hatches.set(name, pattern);
    return pattern ?? colour;
  }

  private counter(drawing: CanvasRenderingContext2D, scene: Scene, slot: LaneSlot, top: number, unit: string): void {
    const share = scaleOf(slot.lane);
    const bottom = top + slot.height;
    const y = (value: number): number => bottom - 2 - share(value) * (slot.height - 5);
    const scale = scene.width / (scene.end - scene.begin);
    const line = new Path2D();
    let [started, lastY, lastX] = [false, bottom, 0];
    let firstX = 0;
    scene.tiles.cover(slot.lane.id, scene.begin, scene.end, 1 / (scale * devicePixelRatio), (tile, from, to) => {
      for (let at = 0; at + 3 < tile.times.length; at += 4) {
        const time = tile.times[at] ?? 0;
        if (time >= to) break;
        const next = tile.times[at + 4] ?? Number.POSITIVE_INFINITY;
        if (next <= from) continue;
        const x = Math.max(-2, (Math.max(time, from) - scene.begin) * scale);
        const [least, most, value] = [tile.times[at + 1] ?? 0, tile.times[at + 2] ?? 0, tile.times[at + 3] ?? 0];
        if (!started) line.moveTo((firstX = x), y(value));
        else line.lineTo(x, lastY);
        if (most > least) {
          line.lineTo(x, y(most));
          line.lineTo(x, y(least));
        }
        line.lineTo(x, (lastY = y(value)));
        lastX = x;
        started = true;
      }
    });
    if (!started) return;
    const end = Math.max(lastX, Math.min(scene.width + 2, scene.width));
    line.lineTo(end, lastY);
    const area = new Path2D(line);
    area.lineTo(end, bottom);
    area.lineTo(firstX, bottom);
    drawing.fillStyle = scene.palette.counterFill;
    drawing.fill(area);
    drawing.strokeStyle = scene.palette.counter;
    drawing.lineWidth = 1.25;
    drawing.stroke(line);
    const { min = 0, max = 0 } = slot.lane;
    const told = (value: number): string => `${quantity(value, max - min)}${unit === "" ? "" : ` ${unit}`}`;
    this.scaleLabel(drawing, scene, told(max), top);
    if (min < max) this.scaleLabel(drawing, scene, told(min), bottom - 13);
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

  private density(drawing: CanvasRenderingContext2D, scene: Scene, slot: LaneSlot, top: number): void {
    const scale = scene.width / (scene.end - scene.begin);
    const bars: { x: number; width: number; events: number; lost: number; over: number }[] = [];
    scene.tiles.cover(slot.lane.id, scene.begin, scene.end, 1 / (scale * devicePixelRatio), (tile, from, to) => {
      collectBins(tile, from, to, (begin, end, events, lost, over) => {
        const x = (begin - scene.begin) * scale;
        bars.push({ x, width: Math.max(0.5, (end - scene.begin) * scale - x), events: events / (end - begin), lost, over });
      });
    });
    const most = bars.reduce((max, bar) => Math.max(max, bar.events), 0);
    const shape = new Path2D();
    for (const bar of bars) {
      if (bar.events <= 0) continue;
      const height = Math.max(1, Math.sqrt(bar.events / most) * (slot.height - 2));
      shape.rect(bar.x, top + slot.height - height, bar.width, height);
    }
    drawing.fillStyle = scene.palette.density;
    drawing.fill(shape);
    for (const [style, amount] of [[Style.overwritten, "over"], [Style.lost, "lost"]] as const) {
      const missing = new Path2D();
      for (const bar of bars) {
        if (bar[amount] > 0) missing.rect(bar.x - 1, top - 1, Math.max(3, bar.width + 1), slot.height + 1);
      }
      drawing.fillStyle = this.hatch(drawing, scene.palette, style);
      drawing.fill(missing);
    }
  }
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
