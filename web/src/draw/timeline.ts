// Timeline: positions rows, requests their tiles, has them painted, and handles the pointer.

import { api, wasAborted } from "../data/api";
import type { App, Hover } from "../app";
import { byId, Size } from "../dom";
import { lanePlaces, Overlay } from "./overlay";
import { Painter, type PlacedRow } from "./painter";
import { readingAt } from "../data/reading";
import { levelFor, Tiles, type Tile } from "../data/tiles";
import { rulerFor } from "../data/time";
import { Tracks, type Row } from "../data/tracks";
import { Style, type ArrowList } from "../data/wire";

/** Largest share of the height for pinned tracks. */
const MAX_PINNED_SHARE = 0.45;
/** Distance at which the pointer still hits a slice, in pixels. */
const POINTER_SLACK = 2;
/** Pause after the last movement before arrows are requested, in milliseconds. */
const ARROW_DELAY = 120;
/** Distance beyond the screen in which lanes are prefetched, in pixels. */
const PREFETCH_MARGIN = 160;

export class Timeline {
  readonly stage = byId("stage");
  readonly overlay: Overlay;
  placed: PlacedRow[] = [];
  width = 100;
  height = 100;
  divider = 0;
  private readonly painter: Painter;
  private readonly size: Size;
  private arrowTimer = 0;
  private arrowsFor = { view: "", generation: 0 };
  private arrowRequest: AbortController | null = null;

  constructor(private readonly app: App) {
    const canvas = byId<HTMLCanvasElement>("lanes");
    this.painter = new Painter(canvas);
    this.overlay = new Overlay(canvas, app);
    this.size = new Size(this.stage, () => app.draw());
    app.reveal = (track) => this.reveal(track);
    this.listen();
  }

  timeAt(x: number): number {
    return this.app.view.begin + (x / this.width) * this.app.view.span;
  }

  xOf(time: number): number {
    return ((time - this.app.view.begin) / this.app.view.span) * this.width;
  }

  /** Positions the visible rows, and requests their tiles. */
  layout(): void {
    const { app } = this;
    const { view, tracks } = app;
    this.width = this.size.width;
    this.height = this.size.height;
    this.divider = Math.min(tracks.pinnedHeight, Math.floor(this.height * MAX_PINNED_SHARE));
    app.scroll = Math.max(0, Math.min(app.scroll, tracks.height - (this.height - this.divider)));
    this.placed = this.place();
    const lanes = new Set(this.visibleLanes(PREFETCH_MARGIN));
    // Tiles of the animation's target are requested when it starts.
    const { begin, end } = view.target;
    app.tiles.want([...lanes], begin, end, (end - begin) / (this.width * devicePixelRatio));
  }

  /** Draws a frame. */
  paint(): void {
    this.layout();
    const { app } = this;
    const { view } = app;
    const ruler = rulerFor(view.begin, view.end, this.width, 130, app.info.begin);
    const grid: number[] = [];
    const first = Math.ceil((view.begin - ruler.anchor) / ruler.step);
    for (let at = first; ruler.anchor + at * ruler.step < view.end; at++) grid.push(this.xOf(ruler.anchor + at * ruler.step));
    this.painter.paint({
      rows: this.placed,
      begin: view.begin,
      end: view.end,
      width: this.width,
      height: this.height,
      divider: this.divider,
      palette: app.palette,
      tiles: app.tiles,
      highlighted: this.highlightedLabel(),
      current: app.current,
      grid,
    });
    // The view moves below a pointer that stands still.
    if (app.hover !== null) app.hover = this.under(app.hover.x, app.hover.y);
    this.overlay.paint(this.placed, this.width, this.height, this.divider);
    this.fetchArrows();
  }

  private highlightedLabel(): number {
    const { selected } = this.app;
    if (selected === null || selected.label === "") return -1;
    const kind = this.app.tracks.laneKind.get(selected.lane)?.kind;
    if (kind !== "cpu" && kind !== "span") return -1;
    return selected.style === Style.idle ? -1 : this.app.tiles.names.find(selected.label);
  }

  private place(): PlacedRow[] {
    const { tracks, scroll } = this.app;
    const placed: PlacedRow[] = [];
    for (const row of tracks.pinnedRows) {
      if (row.y < this.divider) placed.push({ row, y: row.y, pinned: true });
    }
    for (let at = Tracks.rowAt(tracks.rows, scroll); at < tracks.rows.length; at++) {
      const row = tracks.rows[at];
      if (row === undefined) break;
      const y = row.y - scroll + this.divider;
      if (y > this.height) break;
      placed.push({ row, y, pinned: false });
    }
    return placed;
  }

  /** Lanes on the screen, and within a margin in pixels. */
  visibleLanes(margin: number): number[] {
    const { tracks, scroll } = this.app;
    const lanes = this.placed.flatMap(({ row }) => laneIds(row));
    if (margin === 0) return lanes;
    const [low, high] = [scroll - margin, scroll + this.height - this.divider + margin];
    for (let at = Tracks.rowAt(tracks.rows, low); at < tracks.rows.length; at++) {
      const row = tracks.rows[at];
      if (row === undefined || row.y > high) break;
      lanes.push(...laneIds(row));
    }
    return lanes;
  }

  reveal(id: number): void {
    const { app } = this;
    const { tracks } = app;
    app.current = id;
    if (!tracks.pinned.includes(id)) {
      const before = tracks.open.size;
      tracks.reveal(id);
      if (tracks.open.size !== before) {
        tracks.layout();
        app.notify("tracks");
      }
      const row = tracks.rows.find((candidate) => candidate.track.id === id);
      if (row !== undefined) this.scrollTo(row);
    }
    app.draw();
  }

  private scrollTo(row: Row): void {
    const room = this.height - this.divider;
    const [top, bottom] = [row.y - this.app.scroll, row.y + row.height - this.app.scroll];
    if (top >= 0 && bottom <= room) return;
    this.app.scroll = Math.max(0, row.y - Math.max(0, (room - row.height) / 2));
  }

  /** Requests arrows once the view stands still. */
  private fetchArrows(): void {
    const { app } = this;
    if (app.view.moving) return;
    const lanes = [...new Set(this.visibleLanes(0))];
    const view = `${app.arrows}:${app.view.begin}:${app.view.end}:${lanes.join(",")}`;
    const { generation } = app.tiles;
    const again = view === this.arrowsFor.view;
    if (again && generation === this.arrowsFor.generation) return;
    this.arrowsFor = { view, generation };
    window.clearTimeout(this.arrowTimer);
    this.arrowRequest?.abort();
    if (!app.arrows || lanes.length === 0) {
      this.overlay.arrows = [];
      return;
    }
    this.arrowTimer = window.setTimeout(() => void this.requestArrows(lanes.slice(0, 400), again), ARROW_DELAY);
  }

  private async requestArrows(lanes: number[], again: boolean): Promise<void> {
    const { view } = this.app;
    const request = new AbortController();
    this.arrowRequest = request;
    try {
      const answer = await api.arrows(view.begin, view.end, this.width, lanes.join(","), again, request.signal);
      this.overlay.arrows = arrowsOf(answer);
      this.overlay.hasMore = answer.more;
      this.app.draw();
    } catch (error) {
      if (!wasAborted(error)) this.overlay.arrows = [];
    }
  }

  /** Lane and slice at a point of the stage. */
  under(x: number, y: number): Hover {
    const hover: Hover = { time: this.timeAt(x), x, y, lane: -1, slice: null, reading: null };
    for (const [lane, { slot, y: top, pinned }] of lanePlaces(this.placed)) {
      if (pinned !== y < this.divider || y < top - 1 || y > top + slot.height + 1) continue;
      hover.lane = lane;
      const hasSlices = slot.lane.kind !== "counter" && slot.lane.kind !== "density";
      if (hasSlices) hover.slice = this.sliceAt(lane, hover.time);
      else hover.reading = readingAt(this.app.tiles, slot.lane, hover.time, this.app.view.span / (this.width * devicePixelRatio));
      break;
    }
    return hover;
  }

  /** Slice of a lane at a time, or the nearest one within a few pixels. */
  sliceAt(lane: number, time: number): Hover["slice"] {
    const { view, tiles } = this.app;
    const pixel = view.span / this.width;
    let [best, distance]: [Hover["slice"], number] = [null, POINTER_SLACK * pixel];
    const look = (tile: Tile): void => {
      if (tile.shape !== "boxes") return;
      for (let at = Tiles.firstAfter(tile, time - POINTER_SLACK * pixel - 1); at < tile.styles.length; at++) {
        const [begin, end] = [tile.times[2 * at] ?? 0, tile.times[2 * at + 1] ?? 0];
        if (begin > time + POINTER_SLACK * pixel) break;
        const away = Math.max(0, begin - time, time - end);
        if (best !== null && away >= distance) continue;
        const label = tiles.labels[tile.labels[at] ?? -1] ?? "";
        best = { begin, end, style: tile.styles[at] ?? 0, label, count: tile.counts[at] ?? 1 };
        distance = away;
      }
    };
    const scale = view.span / (this.width * devicePixelRatio);
    tiles.cover(lane, time - POINTER_SLACK * pixel, time + POINTER_SLACK * pixel, scale, look);
    return best;
  }

  private listen(): void {
    const { stage, app } = this;
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerleave", () => this.setHover(null));
    stage.addEventListener("dblclick", (event) => {
      const hover = this.under(event.offsetX, event.offsetY);
      if (hover.slice !== null) app.view.fit(hover.slice.begin, Math.max(hover.slice.end, hover.slice.begin + 1));
      else app.view.zoom(0.4, hover.time);
    });
  }

  private setHover(hover: Hover | null): void {
    this.app.hover = hover;
    this.app.notify("hover");
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    const [dx, dy] = [event.deltaX * lines, event.deltaY * lines];
    const { view } = this.app;
    if (event.altKey) {
      this.app.scroll += dy;
      this.app.draw();
    } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      view.pan(((event.shiftKey && dx === 0 ? dy : dx) / this.width) * 1.2, false);
    } else {
      view.zoom(1.0022 ** Math.max(-240, Math.min(240, dy)), this.timeAt(event.offsetX), Math.abs(dy) > 40);
    }
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    this.stage.setPointerCapture(event.pointerId);
    const from = { x: event.offsetX, y: event.offsetY };
    const start = { begin: this.app.view.begin, end: this.app.view.end, scroll: this.app.scroll };
    const selects = event.shiftKey;
    let dragged = false;
    const drag = (now: PointerEvent): void => {
      const [dx, dy] = [now.offsetX - from.x, now.offsetY - from.y];
      if (!dragged && Math.hypot(dx, dy) < 4) return;
      dragged = true;
      this.stage.dataset["drag"] = selects ? "area" : "pan";
      if (selects) {
        this.overlay.rubber = { x0: from.x, y0: from.y, x1: now.offsetX, y1: now.offsetY };
        this.app.draw();
      } else {
        const by = (-dx / this.width) * (start.end - start.begin);
        this.app.scroll = start.scroll - dy;
        this.app.view.set({ begin: start.begin + by, end: start.end + by });
      }
    };
    const drop = (now: PointerEvent): void => {
      this.stage.removeEventListener("pointermove", drag);
      this.stage.removeEventListener("pointerup", drop);
      this.stage.removeEventListener("pointercancel", drop);
      delete this.stage.dataset["drag"];
      this.overlay.rubber = null;
      if (!dragged) this.click(now);
      else if (selects) this.selectArea(from, { x: now.offsetX, y: now.offsetY });
      this.app.draw();
    };
    this.stage.addEventListener("pointermove", drag);
    this.stage.addEventListener("pointerup", drop);
    this.stage.addEventListener("pointercancel", drop);
  }

  private move(event: PointerEvent): void {
    if (event.buttons !== 0) return;
    this.setHover(this.under(event.offsetX, event.offsetY));
  }

  private click(event: PointerEvent): void {
    const hover = this.under(event.offsetX, event.offsetY);
    const row = this.placed.find(({ row: candidate, y }) => event.offsetY >= y && event.offsetY < y + candidate.height);
    if (row !== undefined) this.app.current = row.row.track.id;
    if (hover.lane < 0) {
      this.app.unselect();
      return;
    }
    const { slice } = hover;
    const time = slice === null ? hover.time : Math.min(Math.max(hover.time, slice.begin), Math.max(slice.begin, slice.end - 1));
    void this.app.select(hover.lane, Math.floor(time), slice ?? {});
  }

  private selectArea(from: { x: number; y: number }, to: { x: number; y: number }): void {
    const [begin, end] = [this.timeAt(Math.min(from.x, to.x)), this.timeAt(Math.max(from.x, to.x))];
    const [top, bottom] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
    const rows = this.placed.filter(({ row, y }) => y < bottom && y + row.height > top).map(({ row }) => row);
    const tracks = this.app.tracks.selectedBy(rows.map((row) => row.track.id));
    // An area over no track is of all tracks.
    this.app.setArea({ begin: Math.floor(begin), end: Math.ceil(end), all: tracks.length === 0, tracks });
  }

  /** Whether everything visible is drawn from the right level, and up to date. */
  get settled(): boolean {
    return this.app.tiles.settled && !this.app.view.moving;
  }

  /** Whether everything visible is drawn from the right level, possibly outdated. */
  get isComplete(): boolean {
    return this.app.tiles.isComplete && !this.app.view.moving;
  }

  get level(): number {
    return levelFor(this.app.view.span / (this.width * devicePixelRatio));
  }
}

function laneIds(row: Row): number[] {
  return row.slots.map((slot) => slot.lane.id);
}

function arrowsOf(answer: ArrowList): Overlay["arrows"] {
  const arrows: Overlay["arrows"] = [];
  for (let at = 0; at + 4 < answer.arrows.length; at += 5) {
    const [fromTime = 0, fromLane = 0, toTime = 0, toLane = 0, kind = 0] = answer.arrows.slice(at, at + 5);
    arrows.push({ fromTime, fromLane, toTime, toLane, kind });
  }
  return arrows;
}
