// Overlay of the timeline: pointer, selection, area, arrows, notes.

import type { App } from "../app";
import { context } from "../dom";
import type { PlacedRow } from "./painter";
import { FONT } from "./text";
import { grouped } from "../data/time";
import type { LaneSlot } from "../data/tracks";
import type { TraceOverview } from "../data/wire";

export interface Arrow {
  fromTime: number;
  fromLane: number;
  toTime: number;
  toLane: number;
  kind: number;
}

export interface LanePlace {
  slot: LaneSlot;
  y: number;
  pinned: boolean;
}

/** Distance of the lines over unread parts, in pixels. */
const HATCH = 14;
/** Number of arrows above which they are drawn faintly. */
const MAX_STRONG_ARROWS = 60;
/** Number of arrows above which only those of the selection are drawn. */
const MAX_ARROWS = 300;

export class Overlay {
  arrows: Arrow[] = [];
  /** Whether the server left more arrows out. */
  hasMore = false;
  /** Rectangle that the pointer draws. */
  rubber: { x0: number; y0: number; x1: number; y1: number } | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly app: App,
  ) {}

  /** Draws over the lanes. A canvas of its own would be composited with each frame too. */
  paint(rows: PlacedRow[], width: number, height: number, divider: number): void {
    const drawing = context(this.canvas);
    drawing.textBaseline = "alphabetic";
    const places = lanePlaces(rows);
    const visibleLanes = new Map([...places].filter(([, place]) => isVisible(place, divider)));
    const x = this.scale(width);
    this.unread(drawing, x, [width, height]);
    this.failed(drawing, places, x, [width, height]);
    this.area(drawing, rows, x, height);
    this.notes(drawing, x, height);
    drawing.save();
    drawing.beginPath();
    drawing.rect(0, 0, width, height);
    drawing.clip();
    const arrows = this.app.arrows ? this.drawArrows(drawing, visibleLanes, x, width) : 0;
    this.outlines(drawing, visibleLanes, x, width);
    drawing.restore();
    if (divider > 0) {
      drawing.fillStyle = this.app.palette.accent;
      drawing.fillRect(0, divider - 1, width, 1.5);
    }
    if (arrows > MAX_ARROWS) this.words(drawing, tooMany(arrows, this.hasMore), [width, height - 30]);
    this.lines(drawing, x, height);
    if (this.rubber !== null) this.drawRubber(drawing);
  }

  private scale(width: number): (time: number) => number {
    const { begin, span } = this.app.view;
    return (time) => ((time - begin) / span) * width;
  }

  /** Hatches unread parts, which must not look idle or complete. */
  private unread(drawing: CanvasRenderingContext2D, x: (time: number) => number, [width, height]: [number, number]): void {
    const { info, palette } = this.app;
    const gaps = unreadIn(info).map(([begin, end]): [number, number] => [Math.max(0, x(begin)), Math.min(width, x(end))]);
    const visible = gaps.filter(([left, right]) => left < right);
    if (visible.length === 0) return;
    drawing.save();
    drawing.beginPath();
    for (const [left, right] of visible) drawing.rect(left, 0, right - left, height);
    drawing.clip();
    drawing.globalAlpha = 0.3;
    hatch(drawing, palette.overwritten, [width, height]);
    drawing.restore();
    const words = `${(info.glimpses ?? 0) > 0 ? "sampled, not read yet" : "not read yet"} · ${Math.floor(info.progress * 100)} % read`;
    const [left, right] = visible.reduce((most, gap) => (gap[1] - gap[0] > most[1] - most[0] ? gap : most));
    if (right - left > this.wide(drawing, words) + 16) this.words(drawing, words, [left + this.wide(drawing, words) + 16, 8]);
  }

  private wide(drawing: CanvasRenderingContext2D, text: string): number {
    drawing.font = FONT;
    return drawing.measureText(text).width + 16;
  }

  /** Writes a line of text that ends eight pixels left of a position. */
  private words(drawing: CanvasRenderingContext2D, text: string, [right, top]: [number, number]): void {
    const wide = this.wide(drawing, text);
    const left = right - 8 - wide;
    drawing.fillStyle = this.app.palette.ground;
    drawing.fillRect(left, top, wide, 22);
    drawing.fillStyle = this.app.palette.text;
    drawing.fillText(text, left + 8, top + 15);
  }

  /** Hatches tiles whose requests failed, which must not look idle either. */
  private failed(drawing: CanvasRenderingContext2D, places: Map<number, LanePlace>, x: (time: number) => number, [width, height]: [number, number]): void {
    drawing.save();
    drawing.beginPath();
    let any = false;
    for (const { lane, from, to } of this.app.tiles.failures()) {
      const place = places.get(lane);
      const [left, right] = [Math.max(0, x(from)), Math.min(width, x(to))];
      if (place === undefined || left >= right) continue;
      drawing.rect(left, place.y, right - left, place.slot.height);
      any = true;
    }
    if (any) {
      drawing.clip();
      drawing.globalAlpha = 0.6;
      hatch(drawing, this.app.palette.muted, [width, height]);
    }
    drawing.restore();
  }

  private area(drawing: CanvasRenderingContext2D, rows: PlacedRow[], x: (time: number) => number, height: number): void {
    const area = this.app.area;
    if (area === null) return;
    const { accent } = this.app.palette;
    const [left, right] = [x(area.begin), x(area.end)];
    const tracks = new Set(area.tracks);
    drawing.fillStyle = accent;
    if (area.all) {
      drawing.globalAlpha = 0.07;
      drawing.fillRect(left, 0, right - left, height);
    } else {
      drawing.globalAlpha = 0.13;
      for (const { row, y } of rows) if (this.app.tracks.isIn(row.track.id, tracks)) drawing.fillRect(left, y, right - left, row.height);
    }
    drawing.globalAlpha = 0.8;
    drawing.fillRect(left, 0, 1, height);
    drawing.fillRect(right, 0, 1, height);
    drawing.globalAlpha = 1;
  }

  private notes(drawing: CanvasRenderingContext2D, x: (time: number) => number, height: number): void {
    drawing.fillStyle = this.app.palette.accent;
    for (const note of this.app.notes) {
      drawing.globalAlpha = 0.55;
      drawing.fillRect(x(note.time), 0, 1, height);
      if (note.end !== undefined && note.end > note.time) {
        drawing.globalAlpha = 0.06;
        drawing.fillRect(x(note.time), 0, x(note.end) - x(note.time), height);
      }
    }
    drawing.globalAlpha = 1;
  }

  /** Draws arrows. Returns their number. */
  private drawArrows(drawing: CanvasRenderingContext2D, places: Map<number, LanePlace>, x: (time: number) => number, width: number): number {
    const seen = this.arrows.filter((arrow) => {
      const [from, to] = [x(arrow.fromTime), x(arrow.toTime)];
      return Math.max(from, to) >= 0 && Math.min(from, to) <= width && places.has(arrow.fromLane) && places.has(arrow.toLane);
    });
    const { selected } = this.app;
    const [others, mine] = [new Curves(), new Curves()];
    for (const arrow of seen) {
      const [from, to] = [places.get(arrow.fromLane), places.get(arrow.toLane)];
      if (from === undefined || to === undefined) continue;
      const its = selected !== null && touches(arrow, selected.lane, selected.begin, selected.end);
      // Of too many arrows, only those of the selection are readable.
      if (!its && seen.length > MAX_ARROWS) continue;
      (its ? mine : others).add([x(arrow.fromTime), middle(from)], [x(arrow.toTime), middle(to)]);
    }
    drawing.lineWidth = 1.2;
    others.draw(drawing, this.app.palette.arrow, seen.length <= MAX_STRONG_ARROWS ? 0.38 : Math.max(0.12, 16 / seen.length));
    mine.draw(drawing, this.app.palette.accent, 1);
    return seen.length;
  }

  private outlines(drawing: CanvasRenderingContext2D, places: Map<number, LanePlace>, x: (time: number) => number, width: number): void {
    const { hover, selected, palette } = this.app;
    const outline = (lane: number, begin: number, end: number, colour: string, thick: number): void => {
      const place = places.get(lane);
      if (place === undefined) return;
      const left = Math.max(-4, x(begin));
      const right = Math.min(width + 4, Math.max(x(end), left + 2));
      if (right < 0 || left > width) return;
      drawing.strokeStyle = colour;
      drawing.lineWidth = thick;
      drawing.strokeRect(left - 0.5, place.y - 0.5, right - left + 1, place.slot.height + 1);
    };
    if (hover !== null && hover.slice !== null) outline(hover.lane, hover.slice.begin, hover.slice.end, palette.text, 1);
    if (selected !== null) outline(selected.lane, selected.begin, selected.end, palette.accent, 2.5);
  }

  private lines(drawing: CanvasRenderingContext2D, x: (time: number) => number, height: number): void {
    const { hover, cursor, palette } = this.app;
    if (cursor !== null) {
      drawing.fillStyle = palette.accent;
      drawing.fillRect(Math.round(x(cursor)), 0, 1.5, height);
    }
    if (hover !== null && this.rubber === null) {
      drawing.fillStyle = palette.muted;
      drawing.globalAlpha = 0.45;
      drawing.fillRect(Math.round(hover.x), 0, 1, height);
      drawing.globalAlpha = 1;
    }
  }

  private drawRubber(drawing: CanvasRenderingContext2D): void {
    const rubber = this.rubber;
    if (rubber === null) return;
    const [left, top] = [Math.min(rubber.x0, rubber.x1), Math.min(rubber.y0, rubber.y1)];
    const [width, height] = [Math.abs(rubber.x1 - rubber.x0), Math.abs(rubber.y1 - rubber.y0)];
    drawing.fillStyle = this.app.palette.accent;
    drawing.globalAlpha = 0.18;
    drawing.fillRect(left, top, width, height);
    drawing.globalAlpha = 1;
    drawing.strokeStyle = this.app.palette.accent;
    drawing.lineWidth = 1;
    drawing.strokeRect(left + 0.5, top + 0.5, width, height);
  }
}

/** Message in place of arrows. */
export function tooMany(count: number, hasMore: boolean): string {
  return `${grouped(count)}${hasMore ? " and more" : ""} arrows, too many to draw: zoom in, or select a slice`;
}

/** Draws diagonal lines over the clipped area. */
function hatch(drawing: CanvasRenderingContext2D, colour: string, [width, height]: [number, number]): void {
  drawing.strokeStyle = colour;
  drawing.beginPath();
  for (let at = -height; at < width; at += HATCH) {
    drawing.moveTo(at, height);
    drawing.lineTo(at + height, 0);
  }
  drawing.stroke();
}

/** Unread time ranges of the trace. */
export function unreadIn(info: TraceOverview): [number, number][] {
  if (info.progress >= 1) return [];
  const gaps: [number, number][] = [];
  let from = info.begin + info.progress * (info.end - info.begin);
  for (const [begin, end] of info.seen) {
    if (begin > from) gaps.push([from, begin]);
    from = Math.max(from, end);
  }
  if (from < info.end) gaps.push([from, info.end]);
  return gaps;
}

/** Position of each visible lane. If a lane is shown twice, the full row is preferred to a thin
 * line, and then the pinned one. */
export function lanePlaces(rows: PlacedRow[]): Map<number, LanePlace> {
  const places = new Map<number, LanePlace>();
  for (const { row, y, pinned } of rows) {
    for (const slot of row.slots) {
      const known = places.get(slot.lane.id)?.slot;
      const better = known === undefined || (known.small === slot.small ? pinned : known.small);
      if (better) places.set(slot.lane.id, { slot, y: y + slot.y, pinned });
    }
  }
  return places;
}

/** Whether a lane is visible, and not scrolled below the pinned rows. */
export function isVisible(place: LanePlace, divider: number): boolean {
  return place.pinned ? middle(place) < divider : middle(place) >= divider;
}

function middle(place: LanePlace): number {
  return place.y + place.slot.height / 2;
}

function touches(arrow: Arrow, lane: number, begin: number, end: number): boolean {
  const inside = (time: number): boolean => time >= begin && time <= end;
  return (arrow.toLane === lane && inside(arrow.toTime)) || (arrow.fromLane === lane && inside(arrow.fromTime));
}

/** Arrows of one colour, drawn together. */
class Curves {
  private readonly lines = new Path2D();
  private readonly heads = new Path2D();

  add(from: [number, number], to: [number, number]): void {
    const [x0, y0] = from;
    const [x1, y1] = to;
    const bend = Math.max(10, Math.min(60, Math.abs(x1 - x0) / 2));
    this.lines.moveTo(x0, y0);
    this.lines.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    this.heads.moveTo(x1, y1);
    this.heads.lineTo(x1 - 6, y1 - 3.5);
    this.heads.lineTo(x1 - 6, y1 + 3.5);
  }

  draw(drawing: CanvasRenderingContext2D, colour: string, alpha: number): void {
    drawing.globalAlpha = alpha;
    drawing.strokeStyle = colour;
    drawing.fillStyle = colour;
    drawing.stroke(this.lines);
    drawing.fill(this.heads);
    drawing.globalAlpha = 1;
  }
}
