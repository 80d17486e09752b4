// Interface of lane renderers. There is one for each way to draw a lane: slices, the line of a
// counter, and the event density of a channel.

import type { Palette } from "./colours";
import type { Tile, Tiles } from "../data/tiles";
import type { LaneSlot } from "../data/tracks";

/** Visitor of the known parts of a lane, in time order: a tile, and the interval to draw. */
export type TileVisitor = (tile: Tile, from: number, to: number) => void;

/** Lane to be drawn: its contents, its position on the page and in the picture, and its scale. */
export interface LaneView {
  slot: LaneSlot;
  /** Unit of a counter's values. */
  unit: string;
  /** Upper edge on the page, in CSS pixels. */
  y: number;
  /** First row in the picture, and the row after the last one. */
  top: number;
  bottom: number;
  /** Time at the left edge in nanoseconds, and the picture's pixels per nanosecond. */
  begin: number;
  scale: number;
  /** One row of background pixels. */
  ground: Uint32Array;
  palette: Palette;
  tiles: Tiles;
  /** Label whose slices are highlighted; −1 for none. */
  highlighted: number;
  /** Visits what is known of the lane in the visible interval. */
  cover: (visit: TileVisitor) => void;
}

/** Draws over the finished pixels of a lane: names, stripes, scales. */
export type Decoration = (drawing: CanvasRenderingContext2D) => void;

/** Renderer of one kind of lanes. The pixels of all lanes come first, because the canvas takes a
 * whole picture at once. Decorations follow. */
export interface LaneRenderer {
  /** Begins a frame. */
  begin(): void;
  /** Paints a lane's pixels into the picture. Returns its decoration, or null if it has none. */
  paint(lane: LaneView): Decoration | null;
}
