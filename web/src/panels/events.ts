// The tab "Events": every event in order of time, as a table of any length, in step with the
// timeline.
//
// Rows are fetched in pages of 100. A table of a hundred million rows would be higher than a
// browser can scroll, so the bar's place is a share of the rows, and the wheel moves row by row.

import { api, type EventQuery, reason, wasAborted } from "../data/api";
import { type App, stretchOf, tracksOf } from "../app";
import { byId, el, fill, shorten } from "../dom";
import type { Page } from "./panel";
import { RETRY } from "../data/tiles";
import { grouped, moment } from "../data/time";
import type { EventRow, EventRows } from "../data/wire";

const ROW = 20;
const PAGE = 100;
const MOST_PAGES = 60;
/** A filter is counted a quarter of a second at a time: so often is asked where a moment is among
 * what it takes. */
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
  private readonly body = el("div", { class: "rows", attributes: { tabindex: "0", role: "grid", "aria-label": "Events: arrows select a row, Enter goes to it", "aria-owns": "event-rows" } });
  private readonly tall = el("div", { class: "tall" });
  private readonly view = el("div", { class: "table-view", attributes: { id: "event-rows", role: "rowgroup" } });
  private pages = new Map<number, EventRow[]>();
  /** Pages that couldn't be had: they are asked for again a moment later, or when the reader does
   * something. */
  private readonly failed = new Set<number>();
  private retry = 0;
  /** What was known of the trace when the rows were asked for. */
  private known = { of: "", generation: 0 };
  private renewing = false;
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
    app.on("info", () => void this.renew());
    app.on("asked", () => this.restore());
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

  /** A link says what is to be shown. */
  private restore(): void {
    const { filter, names } = this.app.table;
    if (this.filter.value === filter && this.names.value === names) return;
    [this.filter.value, this.names.value] = [filter, names];
    this.restart();
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
    void this.renew();
    this.draw();
  }

  private get visible(): number {
    return Math.max(1, Math.floor(this.body.clientHeight / ROW));
  }

  /** The table begins anew: another filter, another area. */
  private restart(): void {
    this.app.table = { filter: this.filter.value.trim(), names: this.names.value.trim() };
    this.app.draw();
    if (!this.built) return;
    const { area } = this.app;
    const key = JSON.stringify([this.filter.value, this.names.value, area, this.app.shifts]);
    if (key === this.asked) return;
    this.asked = key;
    this.request?.abort();
    this.request = new AbortController();
    this.pages = new Map();
    this.failed.clear();
    this.known = this.knownNow();
    this.total = 0;
    this.first = 0;
    this.chosen = -1;
    this.turn += 1;
    this.root.dataset["ready"] = "false";
    const { request } = this;
    void this.fetch(0).then(() => {
      // What is chosen on the timeline is found among other rows, too.
      if (request === this.request) this.follow();
    });
  }

  private query(): Omit<EventQuery, "row" | "count"> {
    const { area, info } = this.app;
    const query: Omit<EventQuery, "row" | "count"> = area === null ? { from: info.begin, to: info.end + 1 } : stretchOf(area);
    if (this.filter.value.trim() !== "") query.filter = this.filter.value.trim();
    if (this.names.value.trim() !== "") query.e = this.names.value.trim();
    return query;
  }

  /** What may change which rows there are. What a filter takes is looked for in all the trace,
   * read or not; whose they are is known of what was read. */
  private knownNow(): { of: string; generation: number } {
    const { generation = 0, progress, events, end } = this.app.info;
    const { filter, e, tracks } = this.query();
    const counts = tracks !== undefined || (filter === undefined && e === undefined) ? [events, end] : [];
    return { of: JSON.stringify([generation, progress >= 1, ...counts]), generation };
  }

  /** More of the trace is known than when the rows were asked for: how many there are, and those
   * that weren't there. */
  private async renew(): Promise<void> {
    if (!this.built || this.root.hidden || this.renewing) return;
    const [now, before] = [this.knownNow(), this.known];
    if (now.of === before.of) return;
    this.known = now;
    this.renewing = true;
    const { request } = this;
    const anew = now.generation !== before.generation;
    const [low, high] = [Math.floor(this.first / PAGE), Math.floor((this.first + this.visible) / PAGE)];
    const old = [...this.pages].filter(([, rows]) => anew || rows.length < PAGE).map(([page]) => page);
    const inSight = old.filter((page) => page >= low && page <= high);
    for (const page of old) if (!inSight.includes(page)) this.pages.delete(page);
    // How many there are is said with any page, be it an empty one.
    for (const page of inSight.length > 0 ? inSight : [Math.ceil(this.total / PAGE)]) {
      if (request === this.request) await this.fetch(page, true);
    }
    this.renewing = false;
    // There may be news of the meantime.
    void this.renew();
  }

  /** Asks for a page that isn't there; or also for one that is, and may be another one now. */
  private async fetch(page: number, again = false): Promise<void> {
    if (!again && (this.pages.has(page) || this.failed.has(page))) return;
    const { request } = this;
    if (!this.pages.has(page)) this.pages.set(page, []);
    try {
      const answer = await this.ask(page);
      // The table may be another one by now.
      if (request !== this.request) return;
      if (answer.bad !== undefined && answer.bad !== "") this.bad(answer.bad);
      else this.take(page, answer);
      if (this.pages.size > MOST_PAGES) this.forget(page);
    } catch (error) {
      if (wasAborted(error) || request !== this.request) return;
      this.fail(page, error);
    }
    this.root.dataset["ready"] = "true";
    this.draw();
  }

  private take(page: number, answer: EventRows): void {
    this.pages.set(page, answer.rows);
    const before = this.total;
    const least = page * PAGE + answer.rows.length + (answer.rows.length === PAGE ? PAGE : 0);
    this.total = answer.total ?? Math.max(this.total, least);
    this.filter.classList.remove("wrong");
    const unsure = answer.total === null && answer.rows.length === PAGE;
    const { area, info } = this.app;
    const where = area === null ? "" : area.all ? " in the area" : ` of ${tracksOf(this.app.tracks, area)} in the area`;
    const read = info.progress < 1 ? `, ${Math.floor(info.progress * 100)} % read` : "";
    this.status.textContent = `${unsure ? "at least " : ""}${grouped(this.total)} events${where}${read}`;
    // The bar's place is a share of the rows.
    if (this.total !== before) this.scrollTo(this.first);
  }

  /** A page that isn't there is asked for again after a second; one that is there stays as it was
   * till then. */
  private fail(page: number, error: unknown): void {
    if (this.pages.get(page)?.length === 0) this.pages.delete(page);
    this.failed.add(page);
    this.status.textContent = `${reason(error)}; retrying every second`;
    window.clearTimeout(this.retry);
    this.retry = window.setTimeout(() => this.again(), RETRY);
  }

  private again(): void {
    if (this.failed.size === 0) return;
    this.failed.clear();
    if (this.total === 0) void this.fetch(0);
    // Rows that are there may be older than what is known.
    this.known.of = "";
    void this.renew();
    this.draw();
  }

  /** Filtered rows may take the server several looks, of which each has those behind the ones
   * before. */
  private async ask(page: number): Promise<EventRows> {
    const { request } = this;
    const rows: EventRow[] = [];
    for (;;) {
      const wanted = { row: page * PAGE + rows.length, count: PAGE - rows.length };
      const answer = await api.events({ ...this.query(), ...wanted }, request?.signal);
      rows.push(...answer.rows);
      if (answer.continue !== true || rows.length >= PAGE) return { ...answer, rows };
      this.status.textContent = `searching, ${Math.round((answer.scanned ?? 0) * 100)} % …`;
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
    this.body.setAttribute("aria-rowcount", String(this.total));
    this.body.setAttribute("aria-activedescendant", this.chosen < 0 ? "" : `event-${this.chosen}`);
  }

  private row(row: EventRow, number: number): HTMLElement {
    const { app } = this;
    const line = el("div", { class: number === this.chosen ? "event-row chosen" : "event-row", data: { row: String(row.row) }, attributes: { id: `event-${number}`, role: "row", "aria-rowindex": String(number + 1), "aria-selected": String(number === this.chosen) } });
    const texts = [moment(app.clockBase, app.clock, row.time), row.cpu ?? "", row.tid ?? "", shorten(row.name, 120), shorten(row.text, 600)];
    for (const text of texts) line.append(el("span", { text: String(text), attributes: { role: "gridcell" } }));
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
    const { from, to } = this.query();
    if (selected.begin >= from && selected.begin <= to) void this.goTo(selected.begin);
  }

  /** Shows the first row at or after a moment: as many are before it as the table has up to
   * there. */
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
    this.again();
    const lines = event.deltaMode === 1 ? event.deltaY : event.deltaY / ROW;
    this.scrollTo(this.first + (Math.round(lines) || Math.sign(lines)));
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: this.visible, PageUp: -this.visible, Home: -this.total, End: this.total };
    const step = steps[event.key];
    if (step === undefined && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    this.again();
    if (step !== undefined) this.mark(step);
    const row = this.pages.get(Math.floor(this.chosen / PAGE))?.[this.chosen % PAGE];
    if (event.key === "Enter" && row !== undefined) this.choose(this.chosen, row);
  }

  /** Moves the chosen row; the timeline follows when Enter is pressed. */
  private mark(step: number): void {
    const last = this.first + this.visible - 1;
    const isSeen = this.chosen >= this.first && this.chosen <= last;
    const from = isSeen ? this.chosen : step > 0 ? this.first - 1 : this.first;
    this.turn += 1;
    this.chosen = Math.max(0, Math.min(Math.max(0, this.total - 1), from + step));
    if (this.chosen < this.first) this.scrollTo(this.chosen);
    else if (this.chosen > last) this.scrollTo(this.chosen - this.visible + 1);
    else this.draw();
  }
}
