// Painter of the timeline: rows and their lanes. Each kind of lane has a renderer.

import { pack, type Palette } from "./colours";
import { CounterRenderer } from "./counter_lane";
import { DensityRenderer } from "./density_lane";
import { context, fitCanvas } from "../dom";
import type { Decoration, LaneRenderer, TileVisitor } from "./lane_renderer";
import { Patterns } from "./patterns";
import { Picture } from "./picture";
import { SliceRenderer } from "./slice_lane";
import type { Tiles } from "../data/tiles";
import type { LaneSlot, Row } from "../data/tracks";
import type { LaneKind } from "../data/wire";

/** Row with its position on the screen. */
export interface PlacedRow {
  row: Row;
  y: number;
  pinned: boolean;
}

/** Contents of one frame. */
export interface Scene {
  rows: PlacedRow[];
  begin: number;
  end: number;
  width: number;
  height: number;
  /** Height at which pinned rows end and the tree begins. */
  divider: number;
  palette: Palette;
  tiles: Tiles;
  /** Label whose slices are highlighted; −1 for none. */
  highlighted: number;
  /** Track that keys act on. */
  current: number;
  grid: number[];
}

/** Decorations of rows between two heights. */
interface Section {
  top: number;
  bottom: number;
  decorations: Decoration[];
}

export class Painter {
  private readonly picture = new Picture();
  private readonly slices: LaneRenderer;
  private readonly renderers: Partial<Record<LaneKind, LaneRenderer>>;

  constructor(private readonly canvas: HTMLCanvasElement) {
    const patterns = new Patterns();
    this.slices = new SliceRenderer(this.picture, patterns);
    this.renderers = { counter: new CounterRenderer(this.picture), density: new DensityRenderer(this.picture, patterns) };
    // An opaque canvas is composited faster.
    canvas.getContext("2d", { alpha: false });
  }

  paint(scene: Scene): void {
    fitCanvas(this.canvas, scene.width, scene.height);
    const { width, height } = this.canvas;
    const marks = scene.grid.map((x) => Math.round(x * devicePixelRatio));
    this.picture.begin(width, height, { at: marks, wide: Math.max(1, Math.round(devicePixelRatio)), colour: pack(scene.palette.line) });
    const end = scene.rows.reduce((bottom, { row, y }) => Math.max(bottom, y + row.height), 0);
    this.picture.rows(this.picture.ground(pack(scene.palette.ground)), device(end), height);
    for (const renderer of [this.slices, ...Object.values(this.renderers)]) renderer.begin();
    const sections = [this.section(scene, scene.rows.filter((row) => !row.pinned), scene.divider, scene.height)];
    const pinned = scene.rows.filter((row) => row.pinned);
    if (pinned.length > 0) sections.push(this.section(scene, pinned, 0, scene.divider));
    const drawing = context(this.canvas);
    this.picture.put(drawing);
    for (const section of sections) decorate(drawing, scene.width, section);
  }

  /** Paints the pixels of some rows. */
  private section(scene: Scene, rows: PlacedRow[], top: number, bottom: number): Section {
    const section: Section = { top, bottom, decorations: [] };
    this.picture.clipTo({ top: device(top), bottom: device(bottom) });
    const line = new Uint32Array(this.picture.width).fill(pack(scene.palette.line));
    for (const placed of rows) {
      const { row, y } = placed;
      const ground = this.picture.ground(pack(groundOf(scene, row)));
      this.picture.rows(ground, device(y), device(y + row.height));
      this.picture.rows(line, device(y + row.height - 1), device(y + row.height));
      for (const slot of row.slots) {
        const decoration = this.lane(scene, placed, slot, ground);
        if (decoration !== null) section.decorations.push(decoration);
      }
    }
    return section;
  }

  private lane(scene: Scene, { row, y: rowTop }: PlacedRow, slot: LaneSlot, ground: Uint32Array): Decoration | null {
    const { begin, end, palette, tiles, highlighted } = scene;
    const { id, kind } = slot.lane;
    const y = rowTop + slot.y;
    const scale = this.picture.width / (end - begin);
    const cover = (visit: TileVisitor): void => tiles.cover(id, begin, end, 1 / scale, visit);
    const place = { slot, unit: row.track.unit, y, top: device(y), bottom: device(y + slot.height), begin, scale };
    return (this.renderers[kind] ?? this.slices).paint({ ...place, ground, palette, tiles, highlighted, cover });
  }
}

/** Draws names, stripes and scales over the pixels of a section. */
function decorate(drawing: CanvasRenderingContext2D, width: number, { top, bottom, decorations }: Section): void {
  drawing.save();
  drawing.beginPath();
  drawing.rect(0, top, width, bottom - top);
  drawing.clip();
  for (const decoration of decorations) decoration(drawing);
  drawing.restore();
}

/** Converts a height on the page to rows of the picture. */
function device(y: number): number {
  return Math.round(y * devicePixelRatio);
}

/** Background colour of a row. */
function groundOf(scene: Scene, row: Row): string {
  if (row.track.id === scene.current) return scene.palette.current;
  return row.folds ? scene.palette.stripe : scene.palette.ground;
}
