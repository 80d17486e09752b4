// Readings of lanes without slices: the value of a counter, or the event counts of a channel.

import { grouped, quantity } from "./time";
import { levelFor, type Tile, type Tiles } from "./tiles";
import type { EventTotals, LaneInfo } from "./wire";

/** Reading at a time. */
export type Reading =
  | { shape: "points"; begin: number; end: number; value: number; least: number; most: number }
  | ({ shape: "bins"; begin: number; end: number } & EventTotals);

/** Scale of a counter's lane: 0 is its minimum, at the lower edge, and 1 its maximum. */
export function scaleOf({ min = 0, max = 0 }: Pick<LaneInfo, "min" | "max">): (value: number) => number {
  const span = max - min;
  // A constant is drawn in the middle. Halves are used because the difference of the largest
  // numbers overflows.
  if (!(span > 0)) return () => 0.5;
  return (value) => Math.min(1, Math.max(0, (value / 2 - min / 2) / (max / 2 - min / 2)));
}

/** Visits a tile's bins between two times. */
export function collectBins(
  tile: Tile,
  from: number,
  to: number,
  visit: (begin: number, end: number, amounts: EventTotals) => void,
): void {
  const { times } = tile;
  const pixel = (tile.to - tile.from) / 1024;
  for (let at = 0; at + 3 < times.length; at += 4) {
    const begin = times[at] ?? 0;
    const end = begin + pixel;
    if (begin >= to) break;
    if (end <= from) continue;
    visit(begin, end, { events: times[at + 1] ?? 0, lost: times[at + 2] ?? 0, overwritten: times[at + 3] ?? 0 });
  }
}

/** Reading of a lane at a time. `pixel` is the length of a screen pixel in nanoseconds. */
export function readingAt(tiles: Tiles, lane: LaneInfo, time: number, pixel: number): Reading | null {
  return lane.kind === "counter" ? pointAt(tiles, lane.id, time, pixel) : binsAt(tiles, lane.id, time, pixel);
}

function pointAt(tiles: Tiles, lane: number, time: number, pixel: number): Reading | null {
  let found: Reading | null = null;
  // A tile begins with the last point before it.
  tiles.cover(lane, time, time + 1e-9, pixel, ({ times }) => {
    for (let at = 0; at + 3 < times.length; at += 4) {
      const begin = times[at] ?? 0;
      if (begin > time) break;
      const end = times[at + 4] ?? begin;
      const [least = 0, most = 0, value = 0] = [times[at + 1], times[at + 2], times[at + 3]];
      // After a pixel with several changes, the last value holds.
      const changed = time - begin <= tileScale(pixel) && most > least;
      found = { shape: "points", begin, end, value, least: changed ? least : value, most: changed ? most : value };
    }
  });
  return found;
}

function tileScale(pixel: number): number {
  return 2 ** levelFor(pixel);
}

function binsAt(tiles: Tiles, lane: number, time: number, pixel: number): Reading | null {
  const found: Reading = { shape: "bins", begin: Number.POSITIVE_INFINITY, end: Number.NEGATIVE_INFINITY, events: 0, lost: 0, overwritten: 0 };
  // Losses are drawn three pixels wide, so the neighbours count too.
  const [from, to] = [time - pixel, time + pixel];
  tiles.cover(lane, from, to, pixel, (tile, begin, end) => {
    collectBins(tile, Math.max(from, begin), Math.min(to, end), (first, last, { events, lost, overwritten }) => {
      found.begin = Math.min(found.begin, first);
      found.end = Math.max(found.end, last);
      found.events += events;
      found.lost += lost;
      found.overwritten += overwritten;
    });
  });
  return found.end < found.begin ? null : found;
}

/** Text of a counter's value and its known range. */
export function valueText(value: number | null | undefined, range: [number | null, number | null], unit: string): string {
  const [least, most] = [range[0] ?? Number.NaN, range[1] ?? Number.NaN];
  const apart = most - least;
  const of = unit === "" ? "" : ` ${unit}`;
  if (value === null || value === undefined || !Number.isFinite(value)) return "unknown";
  const text = `${quantity(value, apart)}${of}`;
  return apart > 0 ? `${text} (${quantity(least, apart)} … ${quantity(most, apart)})` : text;
}

/** Text of event counts: events, lost, overwritten. */
export function amountsText({ events, lost, overwritten }: EventTotals): string {
  const parts = [events === 1 ? "1 event" : `${grouped(events)} events`];
  if (lost > 0) parts.push(`${grouped(lost)} lost`);
  if (overwritten > 0) parts.push(`${grouped(overwritten)} overwritten`);
  return parts.join(", ");
}
