// The tab "Events": every event in order of time, as a table of any length, in step with the timeline.
//
// Rows are fetched in pages of 100. A table of a hundred million rows would be higher than a browser can
// scroll, so the bar's place is a share of the rows, and the wheel moves row by row.

import { api, type EventQuery, reason, wasAborted } from "./api";
import type { App } from "./app";
import { byId, el, fill, shorten } from "./dom";
import type { Page } from "./panel";
import { grouped, moment } from "./time";
import type { EventRow, EventRows } from "./wire";

const ROW = 20;
const PAGE = 100;
const MOST_PAGES = 60;
/** A filter is counted a quarter of a second at a time: so often is asked where a moment is among what it takes. */
const MOST_LOOKS = 8;
/** Browsers lose count of pixels beyond this. */
const MOST_HEIGHT = 4_000_000;

export class Events implements Page {
  private readonly root = byId("page-events");
  private readonly filter = el("input", {
    class: "filter",
    attributes: { type: "text", placeholder: 'filter: rows > 100 && $tid == 12', spellcheck: "false", "aria-label": "Filter" },
  });
  private readonly names = el("input", {
    class: "filter glob",
    attributes: { type: "text", placeholder: "names: sched_*", spellcheck: "false", "aria-label": "Names of events" },
  });
  private readonly status = el("span", { class: "muted" });
  private readonly body = el("div", { class: "rows", attributes: { tabindex: "0", role: "table" } });
  private readonly tall = el("div", { class: "tall" });
  private readonly view = el("div", { class: "table-view" });
  private pages = new Map<number, EventRow[]>();
  private total = 0;
  private first = 0;
  private chosen = -1;
  /** Counts who asked where a moment is: the last one is told. */
  private turn = 0;
  private request: AbortController | null = null;
  private asked = "";
  private built = false;
  private timer = 0;
  /** The table leads the timeline, or follows it. */
  private leading = false;

  constructor(private readonly app: App) {
    app.on("selected", () => this.follow());
    app.on("clock", () => this.draw());
    app.on("area", () => this.restart());
    app.on("shift", () => this.restart());
    for (const input of [this.filter, this.names]) {
      input.addEventListener("input", () => {
        window.clearTimeout(this.timer);
        this.timer = window.setTimeout(() => this.restart(), 250);
      });
    }
    this.body.addEventListener("scroll", () => this.scrolled());
    this.body.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  show(): void {
    if (this.root.hidden) return;
    if (!this.built) {
      const head = el("div", { class: "table-head" }, this.names, this.filter, this.status);
      const heads = el("div", { class: "event-row heads" });
      for (const text of ["time", "CPU", "thread", "event", "fields"]) heads.append(el("span", { text }));
      this.body.append(this.tall);
      fill(this.root, head, heads, el("div", { class: "table-place" }, this.body, this.view));
      this.view.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      this.built = true;
      this.restart();
      this.follow();
    }
    this.draw();
  }

  private get visible(): number {
    return Math.max(1, Math.floor(this.body.clientHeight / ROW));
  }

  /** The table begins anew: another filter, another area. */
  private restart(): void {
    if (!this.built) return;
    const { area } = this.app;
    const key = JSON.stringify([this.filter.value, this.names.value, area?.begin, area?.end, this.app.shifts]);
    if (key === this.asked) return;
    this.asked = key;
    this.request?.abort();
    this.request = new AbortController();
    this.pages = new Map();
    this.total = 0;
    this.first = 0;
    this.chosen = -1;
    this.turn += 1;
    this.root.dataset["ready"] = "false";
    void this.fetch(0);
  }

  private query(): Pick<EventQuery, "from" | "to" | "filter" | "e"> {
    const { area, info } = this.app;
    const query: Pick<EventQuery, "from" | "to" | "filter" | "e"> =
      area === null ? { from: info.begin, to: info.end + 1 } : { from: area.begin, to: area.end };
    if (this.filter.value.trim() !== "") query.filter = this.filter.value.trim();
    if (this.names.value.trim() !== "") query.e = this.names.value.trim();
    return query;
  }

  private async fetch(page: number): Promise<void> {
    if (this.pages.has(page)) return;
    this.pages.set(page, []);
    try {
      const answer = await this.ask(page);
      if (answer.bad !== undefined && answer.bad !== "") this.bad(answer.bad);
      else {
        this.pages.set(page, answer.rows);
        const least = page * PAGE + answer.rows.length + (answer.rows.length === PAGE ? PAGE : 0);
        this.total = answer.total ?? Math.max(this.total, least);
        this.filter.classList.remove("wrong");
        const unsure = answer.total === null && answer.rows.length === PAGE;
        this.status.textContent = `${unsure ? "at least " : ""}${grouped(this.total)} events${this.app.area === null ? "" : " in the area"}`;
      }
      if (this.pages.size > MOST_PAGES) this.forget(page);
    } catch (error) {
      this.pages.delete(page);
      if (wasAborted(error)) return;
      this.bad(reason(error));
    }
    this.root.dataset["ready"] = "true";
    this.draw();
  }

  /** Filtered rows may take the server several looks. */
  private async ask(page: number): Promise<EventRows> {
    const request = this.request;
    for (;;) {
      const answer = await api.events({ ...this.query(), row: page * PAGE, count: PAGE }, request?.signal);
      if (answer.continue !== true || answer.rows.length === PAGE) return answer;
      this.status.textContent = `looking, ${Math.round((answer.scanned ?? 0) * 100)} % …`;
    }
  }

  private forget(near: number): void {
    const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - near) - Math.abs(a - near));
    for (const page of far.slice(0, MOST_PAGES / 2)) this.pages.delete(page);
  }

  private bad(line: string): void {
    this.filter.classList.add("wrong");
    this.status.textContent = line;
  }

  private draw(): void {
    if (!this.built || this.root.hidden) return;
    const height = Math.min(MOST_HEIGHT, this.total * ROW);
    this.tall.style.height = `${height}px`;
    const rows: HTMLElement[] = [];
    for (let at = 0; at <= this.visible; at++) {
      const number = this.first + at;
      if (number >= this.total && this.total > 0) break;
      const page = Math.floor(number / PAGE);
      if (number < this.total && !this.pages.has(page)) void this.fetch(page);
      const row = this.pages.get(page)?.[number - page * PAGE];
      if (row !== undefined) rows.push(this.row(row, number));
    }
    fill(this.view, ...rows);
  }

  private row(row: EventRow, number: number): HTMLElement {
    const { app } = this;
    const line = el("div", { class: number === this.chosen ? "event-row chosen" : "event-row", data: { row: String(row.row) } });
    const texts = [moment(app.clockBase, app.clock, row.time), row.cpu ?? "", row.tid ?? "", shorten(row.name, 120), shorten(row.text, 600)];
    for (const text of texts) line.append(el("span", { text: String(text) }));
    line.title = shorten(row.text, 2000);
    line.addEventListener("click", () => this.choose(number, row));
    return line;
  }

  /** The timeline goes to the row's moment. */
  private choose(number: number, row: EventRow): void {
    const { app } = this;
    this.chosen = number;
    this.leading = true;
    app.cursor = row.time;
    const track = row.lane === undefined || row.lane === null ? undefined : app.tracks.laneTrack.get(row.lane);
    if (track !== undefined) app.reveal(track);
    app.view.show(row.time, row.time);
    this.leading = false;
    this.draw();
    app.draw();
  }

  /** The table goes to where the timeline's choice begins. */
  private follow(): void {
    const { selected } = this.app;
    if (selected === null || selected.detail === null || !this.built || this.leading) return;
    void this.goTo(selected.begin);
  }

  /** Shows the first row at or after a moment: as many are before it as the table has up to there. */
  async goTo(time: number): Promise<void> {
    const turn = ++this.turn;
    const query = this.query();
    let before: number | null = 0;
    try {
      for (let look = 0; time > query.from; look++) {
        ({ total: before } = await api.events({ ...query, to: Math.min(query.to, time - 1), row: 0, count: 0 }));
        if (turn !== this.turn) return;
        if (before !== null || look >= MOST_LOOKS) break;
      }
    } catch {
      // The table stays where it is: nobody asked it to move.
      return;
    }
    if (before === null) return;
    this.chosen = before;
    this.scrollTo(Math.max(0, before - Math.floor(this.visible / 3)));
  }

  private scrollTo(row: number): void {
    this.first = Math.max(0, Math.min(row, Math.max(0, this.total - this.visible)));
    const range = Math.max(1, this.total - this.visible);
    const travel = Math.min(MOST_HEIGHT, this.total * ROW) - this.body.clientHeight;
    this.body.scrollTop = (this.first / range) * Math.max(0, travel);
    this.expected = this.body.scrollTop;
    this.draw();
  }

  private expected = -1;

  private scrolled(): void {
    if (Math.abs(this.body.scrollTop - this.expected) < 1) return;
    const travel = Math.min(MOST_HEIGHT, this.total * ROW) - this.body.clientHeight;
    const share = travel <= 0 ? 0 : this.body.scrollTop / travel;
    this.first = Math.round(share * Math.max(0, this.total - this.visible));
    this.draw();
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? event.deltaY : event.deltaY / ROW;
    this.scrollTo(this.first + (Math.round(lines) || Math.sign(lines)));
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: this.visible, PageUp: -this.visible, Home: -this.total, End: this.total };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.scrollTo(this.first + step);
  }
}
