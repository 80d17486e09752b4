// Header: the open trace, its duration, and its losses.

import type { App } from "../app";
import { button, byId, el, fill, shorten } from "../dom";
import { ofIncident, restore } from "../data/link";
import { Offsets } from "./offsets";
import { duration, grouped } from "../data/time";
import type { IncidentSummary, Losses } from "../data/wire";

/** Most lines in a dialog. */
const MAX_LINES = 500;

/** Losses, one line per kind. */
function lossLines({ events, packets, overwritten }: Losses): string[] {
  const kinds: [number, string][] = [[events, "events discarded: their rings were full, or no memory was there"], [packets, "packets lost"], [overwritten, "events overwritten by newer ones"]];
  return kinds.filter(([count]) => count > 0).map(([count, what]) => `${grouped(count)} ${what}`);
}

/** Shortens a message for the header: its first part, with file names without folders. */
export function brief(line: string): string {
  const [first = ""] = line.split("; ");
  const gone = /^(.*) is not there any more$/.exec(first)?.[1];
  if (gone !== undefined) return `gone: ${gone.split("/").at(-1)}`;
  return first.replace(/(^|\s)\/\S*\/(?=[^\s/])/g, "$1");
}

/** Summary of an incident in one line. */
export function incidentText({ begin, end, limit, name, job }: IncidentSummary): string {
  const took = duration(end - begin);
  return job === null ? `${shorten(name, 60)} ran ${took} late` : `${shorten(job, 60)} took ${took} of ${duration(limit)}`;
}

export class Header {
  constructor(private readonly app: App) {
    app.on("info", () => this.show());
    app.on("message", () => this.message());
    new Offsets(app);
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
    const { events, packets, overwritten } = info.losses;
    const place = byId("warnings");
    const chips: HTMLElement[] = [];
    if (info.incident) {
      const { incident } = info;
      chips.push(button(shorten(incidentText(incident), 90), "Go to the late interval", () => restore(this.app, ofIncident(incident)), "chip incident"));
    }
    if (events > 0 || packets > 0) {
      const what = events > 0 ? `${grouped(events)} events lost` : `${grouped(packets)} packets lost`;
      chips.push(this.chip("lost", what, "Discarded events", ["Losses are drawn in red where they happened; click one for its count.", ...lossLines(info.losses)]));
    }
    if (overwritten > 0) {
      const lines = ["By design: a flight recorder keeps the newest events. Overwritten history is drawn in grey, before the channel’s first event and between snapshots.", ...lossLines(info.losses)];
      chips.push(this.chip("overwritten", `${grouped(overwritten)} overwritten`, "Overwritten history", lines));
    }
    for (const [word, title, lines] of [["damage", "Unreadable parts", info.damages], ["time goes back", "Streams whose timestamps go back", info.disorders]] as const) {
      if (lines.length > 0) chips.push(this.chip("lost", lines.length === 1 ? word : `${word} ×${lines.length}`, title, lines));
    }
    for (const line of [info.error, info.gone]) {
      if (line) chips.push(this.chip("lost", shorten(brief(line), 90), "Problem", [line]));
    }
    fill(place, ...chips);
  }

  /** Button that names a problem. A click opens a dialog with all lines. */
  private chip(kind: string, word: string, title: string, lines: readonly string[]): HTMLElement {
    const show = (): void => {
      fill(byId("problem-title"), title);
      const items = lines.slice(0, MAX_LINES).map((line) => el("li", { text: shorten(line, 2000) }));
      if (lines.length > MAX_LINES) items.push(el("li", { class: "muted", text: `and ${grouped(lines.length - MAX_LINES)} more` }));
      fill(byId("problem-lines"), ...items);
      byId<HTMLDialogElement>("problem").showModal();
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
      this.app.showMessage("link to this view copied");
    } catch {
      this.app.showMessage(location.href);
    }
  }
}
