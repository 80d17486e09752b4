// Column of track names: expands, pins and scrolls. Only visible rows have elements.

import type { App } from "../app";
import { byId, el } from "../dom";
import type { PlacedRow } from "./painter";
import type { Timeline } from "./timeline";
import { grouped } from "../data/time";
import { originOf, type Row } from "../data/tracks";

interface NameRow {
  root: HTMLElement;
  expander: HTMLButtonElement;
  name: HTMLElement;
  detail: HTMLElement;
  pin: HTMLButtonElement;
  shown: string;
  track: number;
  y: number;
}

export class Names {
  private readonly root = byId("names");
  private readonly bar = byId("scrollbar");
  private readonly thumb = byId("thumb");
  private readonly rows: NameRow[] = [];
  /** Index of the current row. */
  private active = -1;
  private thumbAt = "";

  constructor(
    private readonly app: App,
    private readonly timeline: Timeline,
  ) {
    this.root.addEventListener("wheel", (event) => {
      event.preventDefault();
      app.scroll += event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      app.draw();
    });
    this.dragThumb();
  }

  private dragThumb(): void {
    this.thumb.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.thumb.setPointerCapture(event.pointerId);
      const [from, start] = [event.clientY, this.app.scroll];
      const drag = (now: PointerEvent): void => {
        const room = this.timeline.height - this.timeline.divider;
        this.app.scroll = start + ((now.clientY - from) / Math.max(1, room)) * this.app.tracks.height;
        this.app.draw();
      };
      const drop = (): void => {
        this.thumb.removeEventListener("pointermove", drag);
        this.thumb.removeEventListener("pointerup", drop);
      };
      this.thumb.addEventListener("pointermove", drag);
      this.thumb.addEventListener("pointerup", drop);
    });
  }

  paint(): void {
    const placed = this.timeline.placed;
    placed.forEach((row, at) => this.show(this.rowNumber(at), row));
    for (let at = placed.length; at < this.rows.length; at++) {
      const row = this.rows[at];
      if (row !== undefined) row.root.hidden = true;
    }
    const at = placed.findIndex(({ row, pinned }) => row.track.id === this.app.current && !pinned);
    if (at !== this.active) {
      this.active = at;
      if (at < 0) this.root.removeAttribute("aria-activedescendant");
      else this.root.setAttribute("aria-activedescendant", `track-row-${at}`);
    }
    const { tracks, scroll } = this.app;
    const room = this.timeline.height - this.timeline.divider;
    const needed = tracks.height > room;
    this.bar.hidden = !needed;
    if (!needed) return;
    const size = Math.max(24, (room / tracks.height) * room);
    const travel = (scroll / Math.max(1, tracks.height - room)) * (room - size);
    const thumb = `height:${size}px;transform:translateY(${this.timeline.divider + travel}px)`;
    if (thumb !== this.thumbAt) this.thumb.style.cssText = this.thumbAt = thumb;
  }

  private rowNumber(at: number): NameRow {
    const known = this.rows[at];
    if (known !== undefined) return known;
    const expander = el("button", { class: "fold", attributes: { type: "button", tabindex: "-1" } });
    const name = el("span", { class: "name" });
    const detail = el("span", { class: "number" });
    const pin = el("button", { class: "pin", title: "Pin to the top (P)", attributes: { type: "button", tabindex: "-1" } });
    const root = el("div", { class: "track", attributes: { role: "treeitem", id: `track-row-${at}` } }, expander, name, detail, pin);
    const made: NameRow = { root, expander, name, detail, pin, shown: "", track: -1, y: Number.NaN };
    root.addEventListener("click", (event) => this.click(made, event));
    root.addEventListener("dblclick", () => this.toggle(made.track));
    this.root.append(root);
    this.rows.push(made);
    return made;
  }

  private click(row: NameRow, event: MouseEvent): void {
    const { app } = this;
    const track = app.tracks.all.get(row.track);
    if (track === undefined) return;
    app.current = row.track;
    if (event.target === row.pin) {
      app.tracks.pin(row.track);
      app.tracks.layout();
    } else if (event.target === row.expander) {
      this.toggle(row.track);
      return;
    }
    app.notify("tracks");
  }

  private toggle(track: number): void {
    const { tracks } = this.app;
    if ((tracks.all.get(track)?.children.length ?? 0) === 0) return;
    tracks.toggle(track);
    tracks.layout();
    this.app.notify("tracks");
  }

  private show(element: NameRow, { row, y, pinned }: PlacedRow): void {
    const { app } = this;
    const { track } = row;
    if (element.root.hidden) element.root.hidden = false;
    if (y !== element.y) {
      element.y = y;
      element.root.style.transform = `translateY(${y}px)`;
    }
    // Pinned rows are cut at the divider.
    const height = pinned ? Math.min(row.height, this.timeline.divider - y) : row.height;
    const current = app.current === track.id;
    const isPinned = app.tracks.pinned.includes(track.id);
    const [name, number] = [nameOf(row), numberOf(row)];
    // Names and numbers of threads may change while the trace is read.
    const shown = [track.id, height, row.open, row.folds, pinned, current, isPinned, row.indent, track.kind, number, name, track.title].join("\u0000");
    if (element.shown === shown) return;
    element.shown = shown;
    element.track = track.id;
    element.root.style.height = `${height}px`;
    element.root.style.paddingLeft = `${6 + row.indent * 14}px`;
    element.root.className = ["track", `is-${track.kind}`, pinned ? "pinned" : "", current ? "current" : ""].join(" ");
    element.root.dataset["track"] = String(track.id);
    if (row.folds) element.root.setAttribute("aria-expanded", String(row.open));
    else element.root.removeAttribute("aria-expanded");
    element.root.setAttribute("aria-level", String(row.indent + 1));
    element.root.setAttribute("aria-selected", String(current));
    element.root.setAttribute("aria-label", `${pinned ? "pinned: " : ""}${name} ${number}`.trim().slice(0, 300));
    element.expander.textContent = row.folds ? (row.open ? "▾" : "▸") : "";
    element.expander.title = row.folds ? (row.open ? "Collapse (Enter)" : "Expand (Enter)") : "";
    if (row.folds) element.expander.setAttribute("aria-expanded", String(row.open));
    else element.expander.removeAttribute("aria-expanded");
    element.expander.setAttribute("aria-label", `${row.open ? "Collapse" : "Expand"} ${name.slice(0, 100)}`);
    element.expander.setAttribute("aria-hidden", String(!row.folds));
    element.name.textContent = name;
    element.detail.textContent = number;
    const recorded = this.app.tracks.recordedOf(row.track.id);
    const origin = recorded === undefined ? "" : `\n${originOf(recorded)}`;
    element.root.title = `${row.track.title}${origin}`.slice(0, 400);
    element.pin.classList.toggle("on", isPinned);
    element.pin.setAttribute("aria-pressed", String(isPinned));
    element.pin.setAttribute("aria-label", `Pin ${name.slice(0, 100)} to the top`);
    element.pin.textContent = "⚲";
  }
}

function nameOf(row: Row): string {
  return row.track.name.slice(0, 300);
}

function numberOf(row: Row): string {
  const { track } = row;
  if (track.tid !== undefined) return String(track.tid);
  if (track.pid !== undefined) {
    const threads = track.children.length - track.processes;
    const parts = [String(track.pid)];
    if (!row.open && threads > 1) parts.push(`${grouped(threads)} threads`);
    if (!row.open && track.processes > 0) parts.push(track.processes === 1 ? "1 process" : `${grouped(track.processes)} processes`);
    return parts.join(" · ");
  }
  if (track.kind === "group" && track.children.length > 0) return grouped(track.children.length);
  return track.unit;
}
