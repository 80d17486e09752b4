// Draws channels: how many events each pixel has, and where events are missing.

import { pack } from "./colours";
import type { Decoration, LaneRenderer, LaneView } from "./lane_renderer";
import type { Patterns } from "./patterns";
import type { Picture } from "./picture";
import { collectBins } from "../data/reading";
import { Style } from "../data/wire";

/** Adjacent columns. */
interface Run {
  x: number;
  width: number;
}

/** Draws the event density of channels. Heights are square roots of counts. */
export class DensityRenderer implements LaneRenderer {
  private events = new Float64Array(0);
  private lost = new Uint8Array(0);
  private overwritten = new Uint8Array(0);

  constructor(
    private readonly picture: Picture,
    private readonly patterns: Patterns,
  ) {}

  begin(): void {
    const { width } = this.picture;
    if (this.events.length === width) return;
    this.events = new Float64Array(width);
    this.lost = new Uint8Array(width);
    this.overwritten = new Uint8Array(width);
  }

  paint(lane: LaneView): Decoration {
    const { events, picture } = this;
    this.count(lane);
    const most = events.reduce((max, count) => Math.max(max, count), 0);
    const room = lane.bottom - lane.top - 2;
    const colour = pack(lane.palette.density);
    for (let x = 0; x < picture.width; x++) {
      const count = events[x] ?? 0;
      if (count <= 0) continue;
      const height = Math.max(1, Math.round(Math.sqrt(count / most) * room));
      picture.column(x, lane.bottom - height, lane.bottom, colour, 1);
    }
    const missing = [[Style.overwritten, runs(this.overwritten)], [Style.lost, runs(this.lost)]] as const;
    return (drawing) => {
      for (const [style, found] of missing) {
        drawing.fillStyle = this.patterns.of(drawing, lane.palette, style);
        for (const { x, width } of found) drawing.fillRect(x / devicePixelRatio, lane.y - 1, width / devicePixelRatio, lane.slot.height + 1);
      }
    };
  }

  /** Counts events in each column, and marks columns with losses. */
  private count({ begin, scale, cover }: LaneView): void {
    const { events, lost, overwritten } = this;
    const { width } = this.picture;
    events.fill(0);
    for (const marks of [lost, overwritten]) marks.fill(0);
    cover((tile, from, to) => {
      collectBins(tile, from, to, (first, end, bin) => {
        // A bin may reach beyond the interval, where another tile takes over.
        const [x0, x1] = [(Math.max(first, from) - begin) * scale, (Math.min(end, to) - begin) * scale];
        const [left, right] = [Math.max(0, Math.floor(x0)), Math.min(width, Math.ceil(x1))];
        const perPixel = bin.events / ((end - first) * scale);
        for (let x = left; x < right; x++) events[x] = (events[x] ?? 0) + perPixel * (Math.min(x1, x + 1) - Math.max(x0, x));
        if (bin.lost > 0) lost.fill(1, left, right);
        if (bin.overwritten > 0) overwritten.fill(1, left, right);
      });
    });
  }
}

/** Runs of marked columns. Each is at least three wide, so that no loss is overlooked. */
export function runs(marked: Uint8Array): Run[] {
  const found: Run[] = [];
  for (let x = 0; x < marked.length; x++) {
    if (marked[x] === 0) continue;
    const last = found.at(-1);
    if (last !== undefined && x - 1 <= last.x + last.width) last.width = x + 2 - last.x;
    else found.push({ x: x - 1, width: 3 });
  }
  return found;
}
