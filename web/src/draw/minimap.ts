// Overview of the whole trace: event density, losses, and the visible range.

import type { App } from "../app";
import type { Channel } from "../data/channel";
import { byId, context, fitCanvas, Size } from "../dom";
import { collectBins } from "../data/reading";
import { RETRY_INTERVAL, TILE_PIXELS, tileSpan } from "../data/tiles";
import type { LaneData, LanesAnswer } from "../data/worker";
import { address, refreshParameter } from "../data/api";

const HEIGHT = 44;
/** Lanes in one request. */
const MAX_LANES_PER_REQUEST = 400;
/** Width of the handles at the edges of the visible range, in pixels. */
const GRIP = 6;

export class Minimap {
  private readonly canvas = byId<HTMLCanvasElement>("minimap");
  private bins: { events: Float64Array; lost: Float64Array; overwritten: Float64Array } | null = null;
  private range = { begin: 0, end: 1 };
  /** Key of the newest request. */
  private requested = "";
  private readonly size: Size;
  /** The density as drawn last, with the key of its data. */
  private picture: { canvas: OffscreenCanvas; key: string } | null = null;
  /** Number of answers. */
  private answers = 0;
  /** Number of the last request. It is negative, which those of tiles are not. */
  private last = 0;

  constructor(private readonly app: App) {
    this.size = new Size(this.canvas.parentElement ?? this.canvas, () => app.draw());
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("dblclick", () => app.view.go(app.view.whole()));
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      app.view.zoom(1.0022 ** event.deltaY, this.timeAt(event.offsetX));
    });
  }

  private get width(): number {
    return this.size.width;
  }

  private timeAt(x: number): number {
    const { begin, end } = this.app.view.whole();
    return begin + (x / this.width) * (end - begin);
  }

  private xOf(time: number): number {
    const { begin, end } = this.app.view.whole();
    return ((time - begin) / (end - begin)) * this.width;
  }

  /** Requests the density of the whole trace if it has changed. */
  async refresh(worker: Channel): Promise<void> {
    const { info, tracks, tiles } = this.app;
    const lanes = [...tracks.laneKind.values()].filter((lane) => lane.kind === "density").map((lane) => lane.id);
    const wanted = `${info.begin}:${info.end}:${tiles.generation}:${lanes.length}`;
    if (wanted === this.requested || lanes.length === 0) return;
    this.requested = wanted;
    const level = Math.ceil(Math.log2(Math.max(1, (info.end - info.begin) / TILE_PIXELS)));
    const pixel = Math.max(1, (info.end - info.begin) / TILE_PIXELS);
    const [from, to] = [info.begin, Math.min(info.begin + tileSpan(level), Math.ceil(info.begin + pixel * TILE_PIXELS))];
    const again = refreshParameter(this.bins !== null);
    const found: LaneData[] = [];
    for (let at = 0; at < lanes.length; at += MAX_LANES_PER_REQUEST) {
      const ids = lanes.slice(at, at + MAX_LANES_PER_REQUEST).join(",");
      const { lanes: some, error } = await this.request(worker, address("lanes", { ids, from, to, width: TILE_PIXELS, ...again }));
      // The traces have changed meanwhile, and a newer request is in progress.
      if (this.requested !== wanted) return;
      if (error !== undefined) {
        // The older picture stays until a request succeeds.
        this.requested = "";
        window.setTimeout(() => void this.refresh(worker), RETRY_INTERVAL);
        return;
      }
      found.push(...some);
    }
    this.range = { begin: from, end: to };
    this.collect(found);
    this.app.draw();
  }

  private request(worker: Channel, path: string): Promise<LanesAnswer> {
    const number = (this.last -= 1);
    const answer = new Promise<LanesAnswer>((resolve) => {
      const take = (event: Event): void => {
        const { data } = event as MessageEvent<LanesAnswer>;
        if (data.request !== number) return;
        worker.removeEventListener("message", take);
        resolve(data);
      };
      worker.addEventListener("message", take);
    });
    worker.postMessage({ kind: "lanes", request: number, url: new URL(path, location.href).href });
    return answer;
  }

  private collect(lanes: LaneData[]): void {
    const make = (): Float64Array => new Float64Array(TILE_PIXELS);
    const bins = { events: make(), lost: make(), overwritten: make() };
    const { begin, end } = this.range;
    const pixel = (end - begin) / TILE_PIXELS;
    for (const lane of lanes) {
      const tile = { ...lane, from: begin, to: end, used: 0, generation: 0, whole: true };
      collectBins(tile, begin, end, (time, _end, { events, lost, overwritten }) => {
        const at = Math.min(TILE_PIXELS - 1, Math.max(0, Math.round((time - begin) / pixel)));
        bins.events[at] = (bins.events[at] ?? 0) + events;
        bins.lost[at] = (bins.lost[at] ?? 0) + lost;
        bins.overwritten[at] = (bins.overwritten[at] ?? 0) + overwritten;
      });
    }
    this.bins = bins;
    this.answers += 1;
  }

  paint(): void {
    const { palette, view } = this.app;
    const width = this.width;
    fitCanvas(this.canvas, width, HEIGHT);
    const drawing = context(this.canvas);
    drawing.clearRect(0, 0, width, HEIGHT);
    if (this.bins !== null) drawing.drawImage(this.densityPicture(), 0, 0, width, HEIGHT);
    const [left, right] = [this.xOf(view.begin), this.xOf(view.end)];
    drawing.fillStyle = palette.theme === "light" ? "#f5f3ee" : "#191e25";
    drawing.globalAlpha = 0.72;
    drawing.fillRect(0, 0, Math.max(0, left), HEIGHT);
    drawing.fillRect(right, 0, Math.max(0, width - right), HEIGHT);
    drawing.globalAlpha = 1;
    for (const note of this.app.notes) {
      drawing.fillStyle = palette.accent;
      drawing.fillRect(this.xOf(note.time), 0, 1.5, HEIGHT);
    }
    const shown = Math.max(2, right - left);
    drawing.strokeStyle = palette.accent;
    drawing.lineWidth = 1.5;
    drawing.strokeRect(left + 0.75, 0.75, shown - 1.5, HEIGHT - 1.5);
    drawing.fillStyle = palette.accent;
    for (const x of [left, left + shown]) drawing.fillRect(x - 2, HEIGHT / 2 - 8, 4, 16);
  }

  /** Picture of the density. Its thousand bars are drawn only when they have changed. */
  private densityPicture(): OffscreenCanvas {
    const { app, width } = this;
    const { begin, end } = app.view.whole();
    const key = [this.answers, begin, end, width, devicePixelRatio, app.theme].join();
    if (this.picture?.key !== key) {
      const canvas = new OffscreenCanvas(Math.round(width * devicePixelRatio), Math.round(HEIGHT * devicePixelRatio));
      const drawing = canvas.getContext("2d");
      drawing?.scale(devicePixelRatio, devicePixelRatio);
      if (drawing !== null) this.density(drawing);
      this.picture = { canvas, key };
    }
    return this.picture.canvas;
  }

  private density(drawing: OffscreenCanvasRenderingContext2D): void {
    const { bins } = this;
    if (bins === null) return;
    const { palette } = this.app;
    const most = bins.events.reduce((max, value) => Math.max(max, value), 1);
    const pixel = (this.range.end - this.range.begin) / TILE_PIXELS;
    const wide = Math.max(1, this.xOf(this.range.begin + pixel) - this.xOf(this.range.begin));
    for (let at = 0; at < TILE_PIXELS; at++) {
      const x = this.xOf(this.range.begin + at * pixel);
      const height = Math.sqrt((bins.events[at] ?? 0) / most) * (HEIGHT - 8);
      drawing.fillStyle = palette.density;
      if (height > 0) drawing.fillRect(x, HEIGHT - height, wide + 0.4, height);
      const missing = (bins.lost[at] ?? 0) > 0 ? palette.lost : (bins.overwritten[at] ?? 0) > 0 ? palette.overwritten : "";
      if (missing === "") continue;
      drawing.fillStyle = missing;
      drawing.fillRect(x - 1, 0, Math.max(2.5, wide), 5);
      drawing.globalAlpha = 0.22;
      drawing.fillRect(x - 1, 0, Math.max(2.5, wide), HEIGHT);
      drawing.globalAlpha = 1;
    }
  }

  private grip(x: number): "begin" | "end" | "window" | "outside" {
    const [left, right] = [this.xOf(this.app.view.begin), this.xOf(this.app.view.end)];
    if (Math.abs(x - left) <= GRIP && x < (left + right) / 2) return "begin";
    if (Math.abs(x - right) <= GRIP) return "end";
    return x > left && x < right ? "window" : "outside";
  }

  private hover(event: PointerEvent): void {
    if (event.buttons !== 0) return;
    const grip = this.grip(event.offsetX);
    this.canvas.style.cursor = grip === "window" ? "grab" : grip === "outside" ? "crosshair" : "ew-resize";
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const { view } = this.app;
    const grip = this.grip(event.offsetX);
    const start = { begin: view.begin, end: view.end };
    const at = this.timeAt(event.offsetX);
    let moved = false;
    const drag = (now: PointerEvent): void => {
      const time = this.timeAt(now.offsetX);
      moved ||= Math.abs(now.offsetX - event.offsetX) > 3;
      if (!moved) return;
      if (grip === "window") view.set({ begin: start.begin + time - at, end: start.end + time - at });
      else if (grip === "begin") view.set({ begin: Math.min(time, start.end - 100), end: start.end });
      else if (grip === "end") view.set({ begin: start.begin, end: Math.max(time, start.begin + 100) });
      else view.set({ begin: Math.min(time, at), end: Math.max(time, at) });
    };
    const drop = (): void => {
      this.canvas.removeEventListener("pointermove", drag);
      this.canvas.removeEventListener("pointerup", drop);
      if (!moved && grip === "outside") view.go({ begin: at - view.span / 2, end: at + view.span / 2 });
    };
    this.canvas.addEventListener("pointermove", drag);
    this.canvas.addEventListener("pointerup", drop);
  }
}
