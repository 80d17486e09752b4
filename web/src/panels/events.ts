// Tab "Events": table of all events in time order, synchronized with the timeline.
//
// Rows are fetched in pages of 100. A table of a hundred million rows would be higher than a
// browser can scroll. So the scroll bar shows a share of the rows, and the wheel moves by rows.

import { api, type EventQuery, reason, wasAborted } from "../data/api";
import { type App, rangeOf, trackCountOf } from "../app";
import { byId, el, fill, shorten } from "../dom";
import type { Page } from "./panel";
import { RETRY_INTERVAL } from "../data/tiles";
import { grouped, moment } from "../data/time";
import type { EventRow, EventRows } from "../data/wire";

const ROW = 20;
const PAGE = 100;
const MAX_PAGES = 60;
/** Requests for the position of a time among filtered rows. The server counts for a quarter of a
 * second in each. */
const MAX_POSITION_REQUESTS = 8;
/** Height in pixels up to which browsers scroll exactly. */
const MAX_HEIGHT = 4_000_000;

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
  /** Pages whose requests failed. They are repeated after a pause, or at the next input. */
  private readonly failed = new Set<number>();
  private retry = 0;
  /** State of the trace at the request of the rows. */
  private known = { key: "", generation: 0 };
  private renewing = false;
  private total = 0;
  private first = 0;
  private current = -1;
  /** Number of the newest position request; answers of older ones are ignored. */
  private positionRequest = 0;
  private request: AbortController | null = null;
  /** Key of the table's filters and area. */
  private shownFor = "";
  private built = false;
  private timer = 0;
  /** Whether the table moves the timeline now, instead of following it. */
  private leading = false;

  constructor(private readonly app: App) {
    app.on("selected", () => this.follow());
    app.on("clock", () => this.draw());
    app.on("area", () => this.restart());
    app.on("shift", () => this.restart());
    app.on("info", () => void this.renew());
    app.on("link", () => this.restore());
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

  /** Applies the filters of a link. */
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

  /** Restarts the table after the filter or the area has changed. */
  private restart(): void {
    this.app.table = { filter: this.filter.value.trim(), names: this.names.value.trim() };
    this.app.draw();
    if (!this.built) return;
    const { area } = this.app;
    const key = JSON.stringify([this.filter.value, this.names.value, area, this.app.offsetKey]);
    if (key === this.shownFor) return;
    this.shownFor = key;
    this.request?.abort();
    this.request = new AbortController();
    this.pages = new Map();
    this.failed.clear();
    this.known = this.knownNow();
    this.total = 0;
    this.first = 0;
    this.current = -1;
    this.positionRequest += 1;
    this.root.dataset["ready"] = "false";
    const { request } = this;
    void this.fetch(0).then(() => {
      // The selection of the timeline is shown among the new rows.
      if (request === this.request) this.follow();
    });
  }

  private query(): Omit<EventQuery, "row" | "count"> {
    const { area, info } = this.app;
    const query: Omit<EventQuery, "row" | "count"> = area === null ? { from: info.begin, to: info.end + 1 } : rangeOf(area);
    if (this.filter.value.trim() !== "") query.filter = this.filter.value.trim();
    if (this.names.value.trim() !== "") query.e = this.names.value.trim();
    return query;
  }

  /** State of the trace that the rows depend on. Filters search the whole trace, read or not, but
   * the tracks of events are known only for the part that was read. */
  private knownNow(): { key: string; generation: number } {
    const { generation, progress, events, end } = this.app.info;
    const { filter, e, tracks } = this.query();
    const counts = tracks !== undefined || (filter === undefined && e === undefined) ? [events, end] : [];
    return { key: JSON.stringify([generation, progress >= 1, ...counts]), generation };
  }

  /** Requests rows and counts again after more of the trace was read. */
  private async renew(): Promise<void> {
    if (!this.built || this.root.hidden || this.renewing) return;
    const [now, before] = [this.knownNow(), this.known];
    if (now.key === before.key) return;
    this.known = now;
    this.renewing = true;
    const { request } = this;
    const isReindexed = now.generation !== before.generation;
    const [low, high] = [Math.floor(this.first / PAGE), Math.floor((this.first + this.visible) / PAGE)];
    const old = [...this.pages].filter(([, rows]) => isReindexed || rows.length < PAGE).map(([page]) => page);
    const visible = old.filter((page) => page >= low && page <= high);
    for (const page of old) if (!visible.includes(page)) this.pages.delete(page);
    // Any page brings the total, even an empty one.
    for (const page of visible.length > 0 ? visible : [Math.ceil(this.total / PAGE)]) {
      if (request === this.request) await this.fetch(page, true);
    }
    this.renewing = false;
    // More may have been read meanwhile.
    void this.renew();
  }

  /** Requests a page that is missing, or with `again` one that may have changed. */
  private async fetch(page: number, again = false): Promise<void> {
    if (!again && (this.pages.has(page) || this.failed.has(page))) return;
    const { request } = this;
    if (!this.pages.has(page)) this.pages.set(page, []);
    try {
      const answer = await this.requestPage(page);
      // The table may have been restarted.
      if (request !== this.request) return;
      if (answer.bad !== undefined) this.bad(answer.bad);
      else this.store(page, answer);
      if (this.pages.size > MAX_PAGES) this.evict(page);
    } catch (error) {
      if (wasAborted(error) || request !== this.request) return;
      this.fail(page, error);
    }
    this.root.dataset["ready"] = "true";
    this.draw();
  }

  private store(page: number, answer: EventRows): void {
    this.pages.set(page, answer.rows);
    const before = this.total;
    const least = page * PAGE + answer.rows.length + (answer.rows.length === PAGE ? PAGE : 0);
    this.total = answer.total ?? Math.max(this.total, least);
    this.filter.classList.remove("wrong");
    const unsure = answer.total === null && answer.rows.length === PAGE;
    const { area, info } = this.app;
    const where = area === null ? "" : area.all ? " in the area" : ` of ${trackCountOf(this.app.tracks, area)} in the area`;
    const read = info.progress < 1 ? `, ${Math.floor(info.progress * 100)} % read` : "";
    this.status.textContent = `${unsure ? "at least " : ""}${grouped(this.total)} events${where}${read}`;
    // The scroll bar shows a share of the rows.
    if (this.total !== before) this.scrollTo(this.first);
  }

  /** Repeats a failed request after a second. Older rows stay until then. */
  private fail(page: number, error: unknown): void {
    if (this.pages.get(page)?.length === 0) this.pages.delete(page);
    this.failed.add(page);
    this.status.textContent = `${reason(error)}; retrying every second`;
    window.clearTimeout(this.retry);
    this.retry = window.setTimeout(() => this.again(), RETRY_INTERVAL);
  }

  private again(): void {
    if (this.failed.size === 0) return;
    this.failed.clear();
    if (this.total === 0) void this.fetch(0);
    // Present rows may be outdated.
    this.known.key = "";
    void this.renew();
    this.draw();
  }

  /** Requests a page. Filtered rows may need several requests, each of which continues the last. */
  private async requestPage(page: number): Promise<EventRows> {
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

  private evict(near: number): void {
    const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - near) - Math.abs(a - near));
    for (const page of far.slice(0, MAX_PAGES / 2)) this.pages.delete(page);
  }

  private bad(line: string): void {
    this.filter.classList.add("wrong");
    this.status.textContent = line;
  }

  private draw(): void {
    if (!this.built || this.root.hidden) return;
    const height = Math.min(MAX_HEIGHT, this.total * ROW);
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
    this.body.setAttribute("aria-activedescendant", this.current < 0 ? "" : `event-${this.current}`);
  }

  private row(row: EventRow, number: number): HTMLElement {
    const { app } = this;
    const line = el("div", { class: number === this.current ? "event-row chosen" : "event-row", data: { row: String(row.row) }, attributes: { id: `event-${number}`, role: "row", "aria-rowindex": String(number + 1), "aria-selected": String(number === this.current) } });
    const texts = [moment(app.clockBase, app.clock, row.time), row.cpu ?? "", row.tid ?? "", shorten(row.name, 120), shorten(row.text, 600)];
    for (const text of texts) line.append(el("span", { text: String(text), attributes: { role: "gridcell" } }));
    line.title = shorten(row.text, 2000);
    line.addEventListener("click", () => this.goToRow(number, row));
    return line;
  }

  /** Moves the timeline to a row's time. */
  private goToRow(number: number, row: EventRow): void {
    const { app } = this;
    this.current = number;
    this.leading = true;
    app.cursor = row.time;
    const track = row.lane === null ? undefined : app.tracks.laneTrack.get(row.lane);
    if (track !== undefined) app.reveal(track);
    app.view.show(row.time, row.time);
    this.leading = false;
    this.draw();
    app.draw();
  }

  /** Moves the table to the begin of the selected slice. */
  private follow(): void {
    const { selected } = this.app;
    if (selected === null || selected.detail === null || !this.built || this.leading) return;
    const { from, to } = this.query();
    if (selected.begin >= from && selected.begin <= to) void this.goTo(selected.begin);
  }

  /** Shows the first row at or after a time. */
  async goTo(time: number): Promise<void> {
    const number = ++this.positionRequest;
    const query = this.query();
    let before: number | null = 0;
    try {
      for (let attempt = 0; time > query.from; attempt++) {
        ({ total: before } = await api.events({ ...query, to: Math.min(query.to, time - 1), row: 0, count: 0 }));
        if (number !== this.positionRequest) return;
        if (before !== null || attempt >= MAX_POSITION_REQUESTS) break;
      }
    } catch {
      // The table stays where it is; the user did not ask it to move.
      return;
    }
    if (before === null) return;
    this.current = before;
    this.scrollTo(Math.max(0, before - Math.floor(this.visible / 3)));
  }

  private scrollTo(row: number): void {
    this.first = Math.max(0, Math.min(row, Math.max(0, this.total - this.visible)));
    const range = Math.max(1, this.total - this.visible);
    const travel = Math.min(MAX_HEIGHT, this.total * ROW) - this.body.clientHeight;
    this.body.scrollTop = (this.first / range) * Math.max(0, travel);
    this.expected = this.body.scrollTop;
    this.draw();
  }

  private expected = -1;

  private scrolled(): void {
    if (Math.abs(this.body.scrollTop - this.expected) < 1) return;
    const travel = Math.min(MAX_HEIGHT, this.total * ROW) - this.body.clientHeight;
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
    if (step !== undefined) this.moveRow(step);
    const row = this.pages.get(Math.floor(this.current / PAGE))?.[this.current % PAGE];
    if (event.key === "Enter" && row !== undefined) this.goToRow(this.current, row);
  }

  /** Moves the current row. Enter moves the timeline there. */
  private moveRow(step: number): void {
    const last = this.first + this.visible - 1;
    const isSeen = this.current >= this.first && this.current <= last;
    const from = isSeen ? this.current : step > 0 ? this.first - 1 : this.first;
    this.positionRequest += 1;
    this.current = Math.max(0, Math.min(Math.max(0, this.total - 1), from + step));
    if (this.current < this.first) this.scrollTo(this.current);
    else if (this.current > last) this.scrollTo(this.current - this.visible + 1);
    else this.draw();
  }
}
