// Dialog "Align traces": the offset of each trace, typed or dragged.

import { api, reason } from "../data/api";
import type { App } from "../app";
import { button, byId, el, fill, shorten } from "../dom";
import type { TracePart } from "../data/wire";

/** Minimum width of a bar's visible part, in pixels. */
const GRIP = 12;

/** Largest offset in milliseconds, 104 days: beyond it, numbers are not exact to nanoseconds. */
const MAX_OFFSET_MS = Math.floor(Number.MAX_SAFE_INTEGER / 1e6);

/** Parses milliseconds to nanoseconds. Returns a message if the text is invalid. */
export function offsetOf(text: string): number | string {
  const typed = text.trim();
  const value = typed === "" ? Number.NaN : Number(typed.replace(",", "."));
  if (Math.abs(value) <= MAX_OFFSET_MS) return Math.round(value * 1e6);
  return `expected milliseconds, such as -2.5, at most 104 days of them; found “${shorten(typed, 40)}”`;
}

/** Names of traces. Equal names are preceded by as many folders as make all distinct. */
export function namesOf(parts: readonly Pick<TracePart, "name" | "path">[]): string[] {
  const folders = parts.map(({ name, path }) => {
    // A trace mostly has the name of its folder.
    const before = path.endsWith(`/${name}`) ? path.slice(0, -name.length) : path;
    return before.split("/").filter((folder) => folder !== "");
  });
  const deepest = Math.max(0, ...folders.map((all) => all.length));
  for (let many = 0; ; many++) {
    const names = parts.map(({ name }, at) => [...(folders[at] ?? []).slice(many === 0 ? Infinity : -many), name].join("/"));
    if (many >= deepest || new Set(names).size === names.length) return names;
  }
}

/** Time range of all traces. */
interface Span {
  begin: number;
  whole: number;
}

/** Row of a trace. */
interface TraceRow {
  element: HTMLElement;
  update: (part: TracePart, span: Span) => void;
}

export class Offsets {
  private readonly dialog = byId<HTMLDialogElement>("traces");
  private readonly status = byId("traces-status");
  private rows = new Map<number, TraceRow>();

  constructor(private readonly app: App) {
    byId("traces-button").addEventListener("click", () => this.open());
  }

  private open(): void {
    const { traces } = this.app.info;
    const names = namesOf(traces);
    this.rows = new Map(traces.map((part, at) => [part.id, this.row(part, names[at] ?? part.name)]));
    this.showError("");
    this.update();
    fill(byId("traces-list"), ...[...this.rows.values()].map((row) => row.element));
    if (!this.dialog.open) this.dialog.showModal();
  }

  /** Shows an error, or hides it if the line is empty. */
  private showError(line: string): void {
    this.status.textContent = line;
    this.status.hidden = line === "";
  }

  /** Updates rows in place, since one of them may have the focus. */
  private update(): void {
    const { traces } = this.app.info;
    // A trace without events has no times.
    const begin = Math.min(...traces.flatMap((part) => part.begin ?? []));
    const span = { begin, whole: Math.max(...traces.flatMap((part) => part.end ?? []), begin + 1) - begin };
    for (const part of traces) this.rows.get(part.id)?.update(part, span);
  }

  private row(first: TracePart, name: string): TraceRow {
    const called = shorten(name, 80);
    let [part, span]: [TracePart, Span] = [first, { begin: 0, whole: 1 }];
    const input = el("input", { attributes: { type: "text", spellcheck: "false", "aria-label": `Offset of ${called} in milliseconds` } });
    const bar = el("i");
    const show = (shift: number): void => {
      const { begin, end } = part;
      bar.hidden = begin === null || end === null;
      if (begin === null || end === null) return;
      const left = ((begin + shift - span.begin) / span.whole) * 100;
      // A bar at the very end, or beyond it, can still be gripped.
      bar.style.left = `min(${left}%, calc(100% - ${GRIP}px))`;
      bar.style.width = `${((end - begin) / span.whole) * 100}%`;
    };
    const type = (offset: number): void => {
      input.value = String(offset / 1e6);
      input.removeAttribute("aria-invalid");
    };
    const lane = el("div", { class: "offset-lane", title: "Drag to shift, or type the offset", attributes: { "aria-hidden": "true" } }, bar);
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      const from = event.clientX;
      const shiftOf = (now: PointerEvent): number => Math.round(((now.clientX - from) / lane.clientWidth) * span.whole);
      const drag = (now: PointerEvent): void => {
        show(shiftOf(now));
        type(part.offset + shiftOf(now));
      };
      const drop = (now: PointerEvent): void => {
        bar.removeEventListener("pointermove", drag);
        bar.removeEventListener("pointerup", drop);
        void this.shift(part, part.offset + shiftOf(now));
      };
      bar.addEventListener("pointermove", drag);
      bar.addEventListener("pointerup", drop);
    });
    input.addEventListener("change", () => {
      const offset = offsetOf(input.value);
      if (typeof offset === "number") void this.shift(part, offset);
      else {
        input.setAttribute("aria-invalid", "true");
        this.showError(offset);
      }
    });
    const reset = button("0", "No offset", () => void this.shift(part, 0));
    reset.setAttribute("aria-label", `No offset of ${called}`);
    const element = el("div", { class: "trace-row", data: { trace: String(first.id) } }, el("b", { text: called, title: first.path }), lane, input, "ms", reset);
    let shown: number | null = null;
    const update = (now: TracePart, all: Span): void => {
      [part, span] = [now, all];
      show(0);
      // Text that is being typed stays.
      if (now.offset !== shown || document.activeElement !== input) type(now.offset);
      shown = now.offset;
    };
    return { element, update };
  }

  private async shift(part: TracePart, offset: number): Promise<void> {
    try {
      await api.offset({ trace: part.id, offset_ns: offset });
      this.app.info = await api.trace();
      this.showError("");
      this.app.applyShift();
    } catch (failure) {
      this.showError(`can't shift: ${reason(failure)}`);
    }
    if (this.dialog.open) this.update();
  }
}
