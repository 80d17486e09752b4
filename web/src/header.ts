// The line at the top: what is open, how far it reaches, what is missing from it.

import { api, reason } from "./api";
import type { App } from "./app";
import { button, byId, el, fill, shorten } from "./dom";
import { ofIncident, restore } from "./link";
import { duration, grouped } from "./time";
import type { Incident, Losses, TracePart } from "./wire";

/** A trace's bar has at least so many pixels to take it by. */
const GRIP = 12;

/** More lines than this say nothing more. */
const MOST_LINES = 500;

/** What is missing, each kind in a line. */
function lossLines({ events, packets = 0, overwritten = 0 }: Losses): string[] {
  const kinds: [number, string][] = [[events, "events lost, for which no room was left"], [packets, "packets lost"], [overwritten, "events overwritten by newer ones"]];
  return kinds.filter(([count]) => count > 0).map(([count, what]) => `${grouped(count)} ${what}`);
}

/** What was late, in a line. */
export function incidentText({ begin, end, limit, name, job }: Incident): string {
  const took = duration(end - begin);
  return job === null ? `${name} ran ${took} late` : `${job} took ${took} of ${duration(limit)}`;
}

export class Header {
  constructor(private readonly app: App) {
    app.on("info", () => this.show());
    app.on("message", () => this.message());
    byId("traces-button").addEventListener("click", () => this.traces());
    byId("link-button").addEventListener("click", () => void this.copy());
  }

  show(): void {
    const { info } = this.app;
    document.title = `${info.name} · Tompion`;
    byId("trace-name").textContent = shorten(info.name, 80);
    byId("trace-name").title = info.traces.map((part) => part.path).join("\n").slice(0, 2000);
    const facts = [duration(info.end - info.begin), `${grouped(info.events)} events`];
    if (info.traces.length > 1) facts.push(`${info.traces.length} traces`);
    if (info.growing) facts.push("growing");
    if (info.progress < 1) facts.push(`${Math.floor(info.progress * 100)} % read`);
    byId("trace-facts").textContent = facts.join(" · ");
    this.warnings();
    byId("traces-button").hidden = info.traces.length < 2;
    const progress = byId("progress");
    progress.hidden = info.progress >= 1;
    (progress.firstElementChild as HTMLElement).style.width = `${Math.round(info.progress * 100)}%`;
    progress.title = `reading: ${Math.round(info.progress * 100)} %`;
  }

  private warnings(): void {
    const { info } = this.app;
    const { events, packets = 0, overwritten = 0 } = info.losses;
    const place = byId("warnings");
    const chips: HTMLElement[] = [];
    if (info.incident) {
      const { incident } = info;
      chips.push(button(shorten(incidentText(incident), 90), "What was late: go there", () => restore(this.app, ofIncident(incident)), "chip incident"));
    }
    if (events > 0 || packets > 0) {
      const what = events > 0 ? `${grouped(events)} events lost` : `${grouped(packets)} packets lost`;
      chips.push(this.chip("lost", what, "What was lost", ["It is drawn in red where it happened: click there to see how much.", ...lossLines(info.losses)]));
    }
    if (overwritten > 0) {
      const lines = ["By design: the flight recorder keeps the newest. It is drawn in grey, from the trace’s begin to the channel’s first event.", ...lossLines(info.losses)];
      chips.push(this.chip("overwritten", `${grouped(overwritten)} overwritten`, "Overwritten history", lines));
    }
    for (const [word, title, lines] of [["damage", "What could not be read", info.damages ?? []], ["time goes back", "Streams in which time goes back", info.disorders ?? []]] as const) {
      if (lines.length > 0) chips.push(this.chip("lost", lines.length === 1 ? word : `${word} ×${lines.length}`, title, lines));
    }
    for (const line of [info.error, info.gone]) {
      if (line) chips.push(this.chip("lost", shorten(line, 90), "What went wrong", [line]));
    }
    fill(place, ...chips);
  }

  /** Something that is wrong, in a word; a click tells all of it. */
  private chip(kind: string, word: string, title: string, lines: readonly string[]): HTMLElement {
    const show = (): void => {
      fill(byId("told-title"), title);
      // A list of thousands is told in part.
      const told = lines.slice(0, MOST_LINES).map((line) => el("li", { text: shorten(line, 2000) }));
      if (lines.length > MOST_LINES) told.push(el("li", { class: "muted", text: `and ${grouped(lines.length - MOST_LINES)} more` }));
      fill(byId("told-lines"), ...told);
      byId<HTMLDialogElement>("told").showModal();
    };
    const chip = button(word, shorten(lines.slice(0, 20).join("\n"), 2000), show, `chip ${kind}`);
    chip.setAttribute("aria-haspopup", "dialog");
    return chip;
  }

  private message(): void {
    const line = byId("message");
    line.textContent = shorten(this.app.message, 300);
    line.hidden = this.app.message === "";
  }

  private async copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(location.href);
      this.app.say("the link to this view is copied");
    } catch {
      this.app.say(location.href);
    }
  }

  /** Several traces on one axis: how each is shifted, typed or dragged. */
  private traces(): void {
    const dialog = byId<HTMLDialogElement>("traces");
    const { info } = this.app;
    const begin = Math.min(...info.traces.map((part) => part.begin));
    const end = Math.max(...info.traces.map((part) => part.end), begin + 1);
    const rows = info.traces.map((part) => this.traceRow(part, begin, end - begin));
    fill(byId("traces-list"), ...rows);
    if (!dialog.open) dialog.showModal();
  }

  private traceRow(part: TracePart, begin: number, span: number): HTMLElement {
    const input = el("input", { attributes: { type: "text", spellcheck: "false", "aria-label": `Offset of ${shorten(part.name, 60)} in milliseconds` } });
    input.value = String(part.offset / 1e6);
    const bar = el("i");
    const show = (shift: number): void => {
      const left = ((part.begin + shift - begin) / span) * 100;
      // Also what is at the very end, or was dragged beyond it, has something to be taken by.
      bar.style.left = `min(${left}%, calc(100% - ${GRIP}px))`;
      bar.style.width = `${((part.end - part.begin) / span) * 100}%`;
    };
    show(0);
    const lane = el("div", { class: "offset-lane", title: "Drag to shift; or type by how much", attributes: { "aria-hidden": "true" } }, bar);
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      const from = event.clientX;
      const shiftOf = (now: PointerEvent): number => Math.round(((now.clientX - from) / lane.clientWidth) * span);
      const drag = (now: PointerEvent): void => {
        show(shiftOf(now));
        input.value = String((part.offset + shiftOf(now)) / 1e6);
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
      const value = Number(input.value.replace(",", "."));
      if (Number.isFinite(value)) void this.shift(part, Math.round(value * 1e6));
    });
    const reset = button("0", "No offset", () => void this.shift(part, 0));
    const name = el("b", { text: shorten(part.name, 60), title: part.path });
    return el("div", { class: "trace-row", data: { trace: String(part.id) } }, name, lane, input, "ms", reset);
  }

  private async shift(part: TracePart, offset: number): Promise<void> {
    try {
      await api.offset(part.id, offset);
      this.app.info = await api.trace();
      this.app.shifted();
      this.traces();
    } catch (failure) {
      this.app.say(`not shifted: ${reason(failure)}`);
    }
  }
}
