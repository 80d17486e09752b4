// The tab "Selection": what happened inside the chosen area, in numbers.

import { api, reason, wasAborted } from "./api";
import type { App } from "./app";
import { byId, button, el, fill, link, shorten } from "./dom";
import { exportButtons } from "./export";
import { histogram } from "./histogram";
import { patch } from "./legend";
import type { Page } from "./panel";
import { duration, grouped, moment, percent } from "./time";
import { Style, type Durations, type Statistics, type ThreadTimes } from "./wire";

/** Rows of a list at first; each click has so many times as many. */
const FIRST_ROWS = 100;
const MORE = 4;

export class Selection implements Page {
  private readonly root = byId("page-selection");
  private request: AbortController | null = null;
  private shownFor = "";
  /** What the histogram is of. */
  private chosen = "";
  private found: Statistics | null = null;
  /** How many rows each list has, where it was asked for more. */
  private rows = new Map<string, number>();
  /** How many the server was asked for; it has its own idea at first. */
  private most: number | undefined;

  constructor(private readonly app: App) {
    app.on("area", () => this.show());
    app.on("shift", () => this.show());
    app.on("clock", () => this.show());
  }

  show(): void {
    if (this.root.hidden) return;
    const { area } = this.app;
    const key = area === null ? "" : JSON.stringify([area, this.app.clock, this.app.info.progress, this.app.theme, this.app.shifts]);
    if (key === this.shownFor && area !== null) return;
    this.shownFor = key;
    this.request?.abort();
    if (area === null) {
      this.root.dataset["ready"] = "empty";
      this.empty();
      return;
    }
    this.root.dataset["ready"] = "false";
    this.rows.clear();
    this.most = undefined;
    void this.ask(area.begin, area.end, area.lanes.join(","));
  }

  private empty(): void {
    const whole = button("Measure what is on the screen", "An area of all tracks", () => this.selectScreen());
    const words = el("p", { class: "lead" }, "Drag with ", el("kbd", { text: "Shift" }), " over the timeline, or along the ruler, to measure an area: times by state, percentiles, counts. ");
    fill(this.root, words, whole);
  }

  selectScreen(): void {
    const { view, info } = this.app;
    const [begin, end] = [Math.max(info.begin, Math.floor(view.begin)), Math.min(info.end, Math.ceil(view.end))];
    this.app.setArea({ begin, end, lanes: [], tracks: [] });
    this.app.setTab("selection");
  }

  private async ask(begin: number, end: number, ids: string): Promise<void> {
    const request = new AbortController();
    this.request = request;
    try {
      const statistics = await api.select(begin, end, ids, this.most, request.signal);
      this.found = statistics;
      this.fill(statistics);
      this.root.dataset["ready"] = "true";
    } catch (error) {
      if (wasAborted(error)) return;
      fill(this.root, el("p", { class: "bad", text: reason(error) }));
      this.root.dataset["ready"] = "error";
    }
  }

  private fill(found: Statistics): void {
    const head = this.head(found);
    const cards = el("div", { class: "cards" });
    cards.append(
      ...[
        this.waits(found),
        this.threads(found),
        this.cpus(found),
        this.durations("Spans", found.spans, found.counts?.spans),
        this.durations("System calls", found.syscalls, found.counts?.syscalls),
        this.durations("Interrupts", found.interrupts, found.counts?.interrupts),
        this.events(found),
      ].filter((card): card is HTMLElement => card !== null),
    );
    fill(this.root, head, cards);
  }

  /** How many rows of a list are shown. */
  private shown(list: string): number {
    return this.rows.get(list) ?? FIRST_ROWS;
  }

  /** Below a list that has not all rows: how many it has, and a way to the others. */
  private rest(list: string, there: number, all: number): HTMLElement | null {
    const shown = Math.min(this.shown(list), there);
    if (shown >= all) return null;
    const more = button(`Show ${grouped(Math.min(all, shown * MORE) - shown)} more`, `There are ${grouped(all)}`, () => this.more(list, there, all));
    more.dataset["list"] = list;
    return el("p", { class: "rest muted" }, `${grouped(shown)} of ${grouped(all)} `, more);
  }

  private more(list: string, there: number, all: number): void {
    const wanted = Math.min(all, this.shown(list) * MORE);
    this.rows.set(list, wanted);
    const { area } = this.app;
    if (wanted > there && area !== null) {
      this.most = wanted;
      this.root.dataset["ready"] = "false";
      void this.ask(area.begin, area.end, area.lanes.join(","));
    } else if (this.found !== null) this.fill(this.found);
  }

  private head(found: Statistics): HTMLElement {
    const { app } = this;
    const area = app.area;
    const head = el("div", { class: "selection-head" });
    if (area === null) return head;
    const clock = app.clockBase;
    const which = area.lanes.length === 0 ? "all tracks" : `${area.tracks.length} track${area.tracks.length === 1 ? "" : "s"}`;
    head.append(
      el("h2", {}, el("strong", { text: duration(area.end - area.begin) }), el("span", { text: which })),
      el("span", { class: "muted", text: `${moment(clock, app.clock, area.begin)} – ${moment(clock, app.clock, area.end)}` }),
    );
    const lost = found.losses?.events ?? 0;
    if (lost > 0) head.append(el("span", { class: "bad", text: `${grouped(lost)} events lost here` }));
    if (found.partial === true) head.append(el("span", { class: "bad", text: "a large area: what is narrower than a 2,000th of it is counted together, so durations are not exact" }));
    const tools = el("span", { class: "tools" });
    tools.append(
      button("Zoom to it", "F", () => app.view.fit(area.begin, area.end)),
      button("Flame graph", "Spans inside, by stack", () => app.setTab("flame")),
      ...exportButtons(app, area),
      button("Clear", "Esc", () => app.setArea(null)),
    );
    head.append(tools);
    return head;
  }

  private waits(found: Statistics): HTMLElement | null {
    const waits = (found.waits ?? []).slice(0, 20);
    if (waits.length === 0) return null;
    const table = el("table", { class: "list" });
    table.append(headings(["", "thread", "waited", "why"]));
    for (const wait of waits) {
      const go = (): void => this.app.jump(wait.lane, wait.begin, wait);
      const name = link(`${shorten(wait.name, 40)} ${wait.tid}`, "Show it", go);
      table.append(
        el("tr", {}, el("td", {}, patch(this.app, wait.style)), el("td", {}, name), number(duration(wait.end - wait.begin)), el("td", { class: "words", text: shorten(wait.why ?? "", 120) })),
      );
    }
    return card("Waited longest for a CPU", table, "wide waits");
  }

  private threads(found: Statistics): HTMLElement | null {
    if (found.threads.length === 0) return null;
    const rows = [...found.threads].sort((a, b) => b.running - a.running).slice(0, this.shown("Threads"));
    const all = found.counts?.threads ?? found.threads.length;
    const table = el("table", { class: "list" });
    table.append(headings(["thread", "time by state", "running", "ready", "preempted", "blocked"]));
    for (const thread of rows) {
      const name = link(`${shorten(thread.name, 40)} ${thread.tid}`, "Go to its track", () => this.app.reveal(thread.track));
      table.append(
        el("tr", {}, el("td", {}, name), el("td", {}, this.bar(thread)), number(duration(thread.running)), number(duration(thread.ready)), number(duration(thread.preempted)), number(duration(thread.blocked))),
      );
    }
    return card(`Threads${of(rows.length, all)}`, el("div", {}, table, this.rest("Threads", found.threads.length, all)), "wide");
  }

  private bar(thread: ThreadTimes): HTMLElement {
    const parts: [number, number][] = [
      [Style.running, thread.running],
      [Style.readyPreempted, thread.preempted],
      [Style.readyWoken, thread.ready],
      [Style.blocked, thread.blocked],
      [Style.unknown, thread.unknown],
    ];
    const whole = parts.reduce((sum, [, time]) => sum + time, 0);
    const bar = el("span", { class: "shares" });
    for (const [style, time] of parts) {
      if (time <= 0) continue;
      const part = el("i", { title: `${STATE_NAMES[style] ?? ""} ${duration(time)}, ${percent(time, whole)}` });
      part.style.width = `${(time / whole) * 100}%`;
      part.style.backgroundColor = this.app.palette.states[style] ?? "";
      bar.append(part);
    }
    return bar;
  }

  private cpus(found: Statistics): HTMLElement | null {
    if (found.cpus.length === 0) return null;
    const table = el("table", { class: "list" });
    table.append(headings(["CPU", "busy", "", "interrupts"]));
    for (const cpu of found.cpus) {
      const whole = cpu.busy + cpu.idle + cpu.unknown;
      const bar = el("span", { class: "shares" });
      const part = el("i");
      part.style.width = `${whole > 0 ? (cpu.busy / whole) * 100 : 0}%`;
      part.style.backgroundColor = this.app.palette.states[Style.running] ?? "";
      bar.append(part);
      table.append(el("tr", {}, el("td", { text: String(cpu.cpu) }), number(percent(cpu.busy, whole)), el("td", {}, bar), number(duration(cpu.interrupts))));
    }
    return card("CPUs", table);
  }

  private durations(title: string, all: Durations[], count = all.length): HTMLElement | null {
    if (all.length === 0) return null;
    const rows = [...all].sort((a, b) => b.total - a.total).slice(0, this.shown(title));
    const place = el("div", { class: "histogram-place" });
    const table = el("table", { class: "list" });
    table.append(headings(["name", "count", "p50", "p99", "longest", "total"]));
    const choose = (one: Durations): void => {
      this.chosen = one.name;
      fill(place, histogram(this.app, one));
    };
    for (const one of rows) {
      const name = link(shorten(one.name, 60), "Histogram of its durations", () => choose(one));
      const longest = one.longest;
      const most = longest ? link(duration(one.max), "Jump to the longest", () => this.app.jump(longest.lane, longest.begin, longest)) : duration(one.max);
      table.append(
        el("tr", {}, el("td", {}, name), number(grouped(one.count)), number(duration(one.p50)), number(duration(one.p99)), el("td", { class: "number" }, most), number(duration(one.total))),
      );
    }
    const first = rows.find((one) => one.name === this.chosen) ?? rows.find((one) => one.count > 1) ?? rows[0];
    if (first !== undefined) fill(place, histogram(this.app, first));
    return card(`${title}${of(rows.length, count)}`, el("div", {}, place, table, this.rest(title, all.length, count)), "wide");
  }

  private events(found: Statistics): HTMLElement | null {
    if (found.events.length === 0) return null;
    const rows = [...found.events].sort((a, b) => b[1] - a[1]).slice(0, this.shown("Events"));
    const table = el("table", { class: "list" });
    for (const [name, count] of rows) {
      table.append(el("tr", {}, el("td", { text: shorten(name, 80) }), number(grouped(count))));
    }
    const sum = found.events.reduce((total, [, count]) => total + count, 0);
    return card(`Events: ${grouped(sum)}`, el("div", {}, table, this.rest("Events", found.events.length, found.events.length)));
  }
}

const STATE_NAMES: Record<number, string> = {
  [Style.running]: "running",
  [Style.readyPreempted]: "preempted",
  [Style.readyWoken]: "ready",
  [Style.blocked]: "blocked",
  [Style.unknown]: "unknown",
};

function of(shown: number, all: number): string {
  return all > shown ? `: ${grouped(shown)} of ${grouped(all)}` : "";
}

function number(text: string): HTMLElement {
  return el("td", { class: "number", text });
}

function headings(names: string[]): HTMLElement {
  return el("tr", {}, ...names.map((text) => el("th", { text })));
}

function card(title: string, content: HTMLElement, className = ""): HTMLElement {
  return el("section", { class: `card ${className}` }, el("h3", { text: title }), el("div", { class: "scrolls" }, content));
}
