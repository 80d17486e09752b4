// Draws counters column by column, each one pixel wide. So a lane costs as much as it has pixels,
// however often its value changes.

import { pack } from "./colours";
import type { Decoration, LaneRenderer, LaneView } from "./lane_renderer";
import type { Picture } from "./picture";
import { FONT } from "./text";
import { scaleOf } from "../data/reading";
import { quantity } from "../data/time";

/** Thickness of the line in CSS pixels. */
const LINE = 1.25;
/** Smallest distance of the line from the lane's upper and lower edge. */
const [ABOVE, BELOW] = [3, 2];
/** Height of a scale's label. */
const LABEL = 13;

/** Draws counters: steps from value to value, with a tint below. */
export class CounterRenderer implements LaneRenderer {
  /** Highest and lowest row of the line in each column. */
  private high = new Float64Array(0);
  private low = new Float64Array(0);

  constructor(private readonly picture: Picture) {}

  begin(): void {
    const { width } = this.picture;
    if (this.high.length === width) return;
    this.high = new Float64Array(width);
    this.low = new Float64Array(width);
  }

  paint(lane: LaneView): Decoration | null {
    if (!this.trace(lane)) return null;
    const { high, low, picture } = this;
    const { palette, bottom } = lane;
    const colour = pack(palette.counter);
    const thick = Math.max(1, Math.round(LINE * devicePixelRatio));
    for (let x = 0; x < picture.width; x++) {
      if ((high[x] ?? 0) > (low[x] ?? 0)) continue;
      const [upper, lower] = [Math.round(high[x] ?? 0), Math.round(low[x] ?? 0) + thick];
      picture.column(x, lower, bottom, colour, palette.counterTint);
      picture.column(x, upper, lower, colour, 1);
    }
    return (drawing) => drawScale(drawing, lane);
  }

  /** Finds the rows of the line in each column. Returns whether any value is known. */
  private trace({ slot, y: top, begin, scale, cover }: LaneView): boolean {
    const { high, low } = this;
    const { width } = this.picture;
    const share = scaleOf(slot.lane);
    const row = (value: number): number => (top + slot.height - BELOW - share(value) * (slot.height - ABOVE - BELOW)) * devicePixelRatio;
    high.fill(Number.POSITIVE_INFINITY);
    low.fill(Number.NEGATIVE_INFINITY);
    const reach = (x: number, y: number): void => {
      if (y < (high[x] ?? 0)) high[x] = y;
      if (y > (low[x] ?? 0)) low[x] = y;
    };
    let [x, y, isKnown, any] = [0, 0, false, false];
    // The column in which a value ends is the one in which the next begins.
    const extend = (to: number): void => {
      if (isKnown) for (let at = x; at <= to; at++) reach(at, y);
      x = to;
    };
    cover((tile, from, to) => {
      const { times } = tile;
      for (let at = 0; at + 3 < times.length; at += 4) {
        const time = times[at] ?? 0;
        if (time >= to) break;
        if ((times[at + 4] ?? Number.POSITIVE_INFINITY) <= from) continue;
        const column = Math.floor((Math.max(time, from) - begin) * scale);
        extend(Math.min(width - 1, Math.max(x, column)));
        const [min, max, value] = [times[at + 1] ?? 0, times[at + 2] ?? 0, times[at + 3] ?? 0];
        if (max > min) {
          reach(x, row(max));
          reach(x, row(min));
        }
        // Where events are missing, the value is unknown until the next one.
        isKnown = Number.isFinite(value);
        any ||= isKnown;
        if (isKnown) reach(x, (y = row(value)));
      }
    });
    if (any) extend(width - 1);
    return any;
  }
}

/** Writes the values of a lane's upper and lower edge. */
function drawScale(drawing: CanvasRenderingContext2D, lane: LaneView): void {
  const { min = 0, max = 0 } = lane.slot.lane;
  const unit = lane.unit === "" ? "" : ` ${lane.unit}`;
  const write = (value: number, top: number): void => drawScaleLabel(drawing, lane, `${quantity(value, max - min)}${unit}`, top);
  write(max, lane.y);
  if (min < max) write(min, lane.y + lane.slot.height - LABEL);
}

function drawScaleLabel(drawing: CanvasRenderingContext2D, { palette }: LaneView, text: string, top: number): void {
  drawing.font = FONT;
  drawing.textBaseline = "top";
  drawing.fillStyle = palette.ground;
  const { width } = drawing.measureText(text);
  drawing.globalAlpha = 0.8;
  drawing.fillRect(2, top, width + 6, LABEL);
  drawing.globalAlpha = 1;
  drawing.fillStyle = palette.muted;
  drawing.fillText(text, 5, top + 1);
}
