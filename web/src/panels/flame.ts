// Tab "Flame": flame graph of spans and functions, by stack and total time.

import { api, reason, type TimeRange, wasAborted } from "../data/api";
import { type App, rangeOf } from "../app";
import { inkOn, nameColour, pack } from "../draw/colours";
import { byId, context, el, fill, fitCanvas, shorten } from "../dom";
import { FONT } from "../draw/text";
import type { Page } from "./panel";
import { unreadOf } from "./statistics";
import { duration, grouped, percent } from "../data/time";
import type { FlameNode } from "../data/wire";

const ROW = 19;

interface Placed {
  node: FlameNode;
  at: number;
  x: number;
  width: number;
}

/** Positions frames below their parents, with widths as shares of the root's time. */
export function placeFlame(nodes: readonly FlameNode[], root: number): { placed: Placed[]; depth: number } {
  const children = new Map<number, number[]>();
  nodes.forEach((node, at) => {
    const parent = node.parent >= 0 && node.parent < at ? node.parent : -1;
    const list = children.get(parent);
    if (list === undefined) children.set(parent, [at]);
    else list.push(at);
  });
  const placed: Placed[] = [];
  let deepest = 0;
  const put = (at: number, x: number, width: number, depth: number): void => {
    const node = nodes[at];
    if (node === undefined || width < 1e-5) return;
    deepest = Math.max(deepest, depth);
    placed.push({ node: { ...node, depth }, at, x, width });
    let left = x;
    for (const child of byTotal(nodes, children.get(at) ?? [])) {
      const share = node.total > 0 ? Math.min(1, (nodes[child]?.total ?? 0) / node.total) * width : 0;
      put(child, left, share, depth + 1);
      left += share;
    }
  };
  if (root >= 0) put(root, 0, 1, 0);
  else {
    const tops = byTotal(nodes, children.get(-1) ?? []);
    const whole = tops.reduce((sum, at) => sum + (nodes[at]?.total ?? 0), 0);
    let left = 0;
    for (const at of tops) {
      const share = whole > 0 ? (nodes[at]?.total ?? 0) / whole : 0;
      put(at, left, share, 0);
      left += share;
    }
  }
  return { placed, depth: deepest + 1 };
}

/** Frame that an arrow key leads to: the parent, the first child, or a neighbour. */
export function adjacentFrame(placed: readonly Placed[], from: number, arrow: string): number {
  const here = placed.find((one) => one.at === from);
  if (here === undefined) return placed[0]?.at ?? -1;
  const depth = here.node.depth + ({ ArrowUp: -1, ArrowDown: 1 }[arrow] ?? 0);
  const row = placed.filter((one) => one.node.depth === depth).sort((a, b) => a.x - b.x);
  const middle = here.x + here.width / 2;
  const found = {
    ArrowUp: row.find((one) => one.x <= middle && middle < one.x + one.width),
    ArrowDown: row.find((one) => one.x + one.width > here.x && one.x < here.x + here.width),
    ArrowLeft: row.filter((one) => one.x < here.x).at(-1),
    ArrowRight: row.find((one) => one.x > here.x),
  }[arrow];
  return found?.at ?? from;
}

function byTotal(nodes: readonly FlameNode[], which: number[]): number[] {
  return [...which].sort((a, b) => (nodes[b]?.total ?? 0) - (nodes[a]?.total ?? 0));
}

export class Flame implements Page {
  private readonly root = byId("page-flame");
  private readonly canvas = el("canvas", {
    class: "flame",
    attributes: { tabindex: "0", role: "application", "aria-label": "Flame graph: arrows select a frame, Enter zooms in, Escape zooms out", "aria-describedby": "flame-status" },
  });
  private readonly status = el("div", { class: "flame-head muted", attributes: { id: "flame-status", "aria-live": "polite" } });
  private readonly place = el("div", { class: "flame-place" }, this.canvas);
  private nodes: FlameNode[] = [];
  /** Remarks on what is not exact. */
  private limits = "";
  /** Remark on the part that is not read. */
  private unread = "";
  private placed: Placed[] = [];
  private focus = -1;
  private hovered = -1;
  private shownFor = "";
  /** Key of the range that is requested once the view stands still. */
  private scheduled = "";
  private controller: AbortController | null = null;
  private timer = 0;

  constructor(private readonly app: App) {
    app.on("area", () => this.show());
    app.on("shift", () => this.show());
    app.on("info", () => {
      if (app.area !== null) this.show();
    });
    app.on("theme", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.setHovered(-1));
    this.canvas.addEventListener("click", () => this.zoomTo(this.hovered === this.focus ? -1 : this.hovered));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Zooms to a frame; −1 shows all. */
  private zoomTo(at: number): void {
    this.focus = at;
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Enter" && this.hovered >= 0) this.zoomTo(this.hovered === this.focus ? -1 : this.hovered);
    else if (event.key === "Escape" && this.focus >= 0) this.zoomTo(-1);
    else if (event.key.startsWith("Arrow") && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) this.setHovered(adjacentFrame(this.placed, this.hovered, event.key));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Schedules an update after the view has moved. Without an area, the graph is of the screen. */
  viewMoved(): void {
    if (this.root.hidden || this.app.area !== null) return;
    const { key } = this.wanted();
    // Frames are drawn for other reasons too.
    if (key === this.scheduled) return;
    this.scheduled = key;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.show(), 250);
  }

  /** Time range and key of the graph. While the trace is read, the graph is of what was read at the
   * request; it is requested again at the end. */
  private wanted(): { range: TimeRange; key: string } {
    const { area, view, info } = this.app;
    const screen = { from: Math.max(info.begin, Math.floor(view.begin)), to: Math.min(info.end, Math.ceil(view.end)) };
    const range = area === null ? screen : rangeOf(area);
    return { range, key: JSON.stringify([range, info.progress >= 1, this.app.offsetKey]) };
  }

  show(): void {
    if (this.root.hidden) return;
    const { range, key } = this.wanted();
    if (key === this.shownFor) {
      this.draw();
      return;
    }
    this.scheduled = key;
    this.shownFor = key;
    this.root.dataset["ready"] = "false";
    void this.request(range);
  }

  private get subject(): string {
    return this.app.area === null ? "the visible area" : "the area";
  }

  private async request(range: TimeRange): Promise<void> {
    this.controller?.abort();
    this.controller = new AbortController();
    try {
      const { nodes, partial, cut, known } = await api.flame(range, this.controller.signal);
      this.nodes = nodes;
      this.unread = unreadOf(this.subject, [range.from, range.to], known);
      this.limits = [
        this.unread === "" ? "" : ` But ${this.unread}.`,
        partial === true ? " The area is large: spans shorter than 1/2000 of it are merged by name." : "",
        cut === true ? ` More than ${grouped(nodes.length)} stacks: the rest count as their callers’ own time.` : "",
      ].join("");
      this.focus = -1;
      this.root.dataset["ready"] = "true";
      this.draw();
    } catch (error) {
      if (wasAborted(error)) return;
      this.root.dataset["ready"] = "error";
      fill(this.root, el("p", { class: "bad", text: reason(error) }));
    }
  }

  private draw(): void {
    if (this.root.hidden) return;
    if (this.nodes.length === 0) {
      const words = this.unread === "" ? "They come from TOMPION_SPAN, the crate tracing, or -finstrument-functions with --preload func." : `But ${this.unread}.`;
      fill(this.root, el("p", { class: "lead", text: `No spans or functions here. ${words}` }));
      return;
    }
    if (this.place.parentElement !== this.root) fill(this.root, this.status, this.place);
    const { placed, depth } = placeFlame(this.nodes, this.focus);
    this.placed = placed;
    const width = Math.max(1, this.place.clientWidth);
    fitCanvas(this.canvas, width, depth * ROW + 2);
    const drawing = context(this.canvas);
    drawing.clearRect(0, 0, width, depth * ROW + 2);
    drawing.font = FONT;
    drawing.textBaseline = "middle";
    for (const one of placed) this.frame(drawing, one, width);
    this.showHovered();
  }

  private frame(drawing: CanvasRenderingContext2D, { node, at, x, width: share }: Placed, width: number): void {
    const { palette } = this.app;
    const [left, wide] = [x * width, share * width];
    if (wide < 0.4) return;
    const colour = palette.nameTexts[nameColour(node.name)] ?? palette.density;
    drawing.fillStyle = colour;
    drawing.fillRect(left, node.depth * ROW, Math.max(0.5, wide - 1), ROW - 1);
    if (at === this.hovered) {
      drawing.strokeStyle = palette.text;
      drawing.lineWidth = 1.5;
      drawing.strokeRect(left + 0.75, node.depth * ROW + 0.75, Math.max(1, wide - 2.5), ROW - 2.5);
    }
    const letters = Math.floor((wide - 10) / 6.2);
    if (letters < 3) return;
    drawing.fillStyle = inkOn(pack(colour));
    drawing.fillText(shorten(node.name, letters), left + 5, node.depth * ROW + ROW / 2);
  }

  private hover(event: PointerEvent): void {
    const [x, depth] = [event.offsetX / Math.max(1, this.place.clientWidth), Math.floor(event.offsetY / ROW)];
    const found = this.placed.find((one) => one.node.depth === depth && x >= one.x && x < one.x + one.width);
    this.setHovered(found?.at ?? -1);
  }

  private setHovered(at: number): void {
    if (at === this.hovered) return;
    this.hovered = at;
    this.draw();
  }

  private showHovered(): void {
    const node = this.nodes[this.hovered];
    const whole = this.nodes.reduce((sum, one) => sum + (one.parent < 0 ? one.total : 0), 0);
    fill(
      this.status,
      node === undefined
        ? `Time of ${this.subject} by stack: ${duration(whole)}. Click a frame to zoom in.${this.limits}`
        : el("span", {}, el("b", { text: shorten(node.name, 160) }), ` ${duration(node.total)}, ${percent(node.total, whole)}; self ${duration(node.self)}; ${grouped(node.count)} times`),
    );
  }
}
