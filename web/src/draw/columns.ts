// Counters and channels are drawn column by column, each a pixel wide: what stands within one is
// put together, so a lane costs as much as it has pixels, however often its value changes there.

import { mix, type Packed } from "./colours";
import type { Picture } from "./picture";
import { collectBins } from "../data/reading";
import type { Tile } from "../data/tiles";

/** Visits what is known of a lane, in the order of time. */
type Cover = (visit: (tile: Tile, from: number, to: number) => void) => void;

/** Where a lane stands in the picture, in its pixels. */
export interface Place {
  top: number;
  bottom: number;
  /** The time at the left edge, and pixels for each nanosecond. */
  begin: number;
  scale: number;
}

/** Columns that stand side by side. */
export interface Run {
  x: number;
  width: number;
}

export class Columns {
  private high = new Float64Array(0);
  private low = new Float64Array(0);
  private missing: [Uint8Array, Uint8Array] = [new Uint8Array(0), new Uint8Array(0)];

  constructor(private readonly picture: Picture) {}

  private begin(): void {
    const { width } = this.picture;
    if (this.high.length !== width) {
      this.high = new Float64Array(width);
      this.low = new Float64Array(width);
      this.missing = [new Uint8Array(width), new Uint8Array(width)];
    }
  }

  /** Draws a counter: steps from value to value, of a line so thick, with a tint below. `row`
   * says how high a value stands; returns whether there was anything. */
  counter(place: Place, cover: Cover, row: (value: number) => number, look: { colour: Packed; thick: number; tint: number }): boolean {
    this.begin();
    const { high, low } = this;
    const { width } = this.picture;
    high.fill(Number.POSITIVE_INFINITY);
    low.fill(Number.NEGATIVE_INFINITY);
    const reach = (x: number, y: number): void => {
      if (y < (high[x] ?? 0)) high[x] = y;
      if (y > (low[x] ?? 0)) low[x] = y;
    };
    let [x, y, started, any] = [0, 0, false, false];
    // Where a value ends and the next begins is one column.
    const goOn = (to: number): void => {
      if (started) for (let at = x; at <= to; at++) reach(at, y);
      x = to;
    };
    cover((tile, from, to) => {
      const { times } = tile;
      for (let at = 0; at + 3 < times.length; at += 4) {
        const time = times[at] ?? 0;
        if (time >= to) break;
        if ((times[at + 4] ?? Number.POSITIVE_INFINITY) <= from) continue;
        const column = Math.floor((Math.max(time, from) - place.begin) * place.scale);
        goOn(Math.min(width - 1, Math.max(x, column)));
        const [least, most, value] = [times[at + 1] ?? 0, times[at + 2] ?? 0, times[at + 3] ?? 0];
        if (most > least) {
          reach(x, row(most));
          reach(x, row(least));
        }
        // Where events are missing, the value is unknown until there is another one.
        started = Number.isFinite(value);
        any ||= started;
        if (started) reach(x, (y = row(value)));
      }
    });
    if (!any) return false;
    goOn(width - 1);
    for (let at = 0; at < width; at++) {
      if ((high[at] ?? 0) > (low[at] ?? 0)) continue;
      const [top, bottom] = [Math.round(high[at] ?? 0), Math.round(low[at] ?? 0) + look.thick];
      this.column(at, bottom, place.bottom, look.colour, look.tint);
      this.column(at, top, bottom, look.colour, 1);
    }
    return true;
  }

  /** Draws how many events a channel has; returns where some were lost, and where history was
   * overwritten. */
  density(place: Place, cover: Cover, colour: Packed): { lost: Run[]; overwritten: Run[] } {
    this.begin();
    const { high: events, missing } = this;
    const { width } = this.picture;
    events.fill(0);
    for (const one of missing) one.fill(0);
    cover((tile, from, to) => {
      collectBins(tile, from, to, (begin, end, count, lost, over) => {
        // Another tile takes over where this one ends.
        const [x0, x1] = [(Math.max(begin, from) - place.begin) * place.scale, (Math.min(end, to) - place.begin) * place.scale];
        const [first, last] = [Math.max(0, Math.floor(x0)), Math.min(width, Math.ceil(x1))];
        const each = count / ((end - begin) * place.scale);
        for (let x = first; x < last; x++) events[x] = (events[x] ?? 0) + each * (Math.min(x1, x + 1) - Math.max(x0, x));
        if (lost > 0) missing[0].fill(1, first, last);
        if (over > 0) missing[1].fill(1, first, last);
      });
    });
    const most = events.reduce((max, count) => Math.max(max, count), 0);
    const room = place.bottom - place.top - 2;
    for (let x = 0; x < width; x++) {
      const count = events[x] ?? 0;
      if (count <= 0) continue;
      const height = Math.max(1, Math.round(Math.sqrt(count / most) * room));
      this.column(x, place.bottom - height, place.bottom, colour, 1);
    }
    return { lost: runs(missing[0]), overwritten: runs(missing[1]) };
  }

  /** Gives a column's pixels between two heights so much of a colour. */
  private column(x: number, top: number, bottom: number, colour: Packed, share: number): void {
    const { pixels, width } = this.picture;
    const seen = this.picture.seen(top, bottom);
    for (let y = seen.top; y < seen.bottom; y++) pixels[y * width + x] = share >= 1 ? colour : mix(pixels[y * width + x] ?? 0, colour, share);
  }
}

/** Marked columns that stand side by side; at least three wide, for what is missing must not be
 * overlooked. */
function runs(marked: Uint8Array): Run[] {
  const found: Run[] = [];
  for (let x = 0; x < marked.length; x++) {
    if (marked[x] === 0) continue;
    const last = found.at(-1);
    if (last !== undefined && x - 1 <= last.x + last.width) last.width = x + 2 - last.x;
    else found.push({ x: x - 1, width: 3 });
  }
  return found;
}
