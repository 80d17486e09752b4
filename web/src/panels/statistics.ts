// Tab "Selection": statistics of the measured area.

import { api, reason, wasAborted } from "../data/api";
import { type App, type Area, rangeOf, trackCountOf } from "../app";
import { styleWord } from "../draw/colours";
import { byId, button, el, fill, link, shorten } from "../dom";
import { exportButtons } from "./export";
import { histogram } from "./histogram";
import { patch } from "./legend";
import type { Page } from "./panel";
import { type Column, Table } from "./table";
import { duration, durationOrDash, grouped, moment, percent } from "../data/time";
import { type DurationStats, type Statistics, Style, type ThreadTimes } from "../data/wire";

/** Widths of columns in pixels. */
const TIME = 76;
const COUNT = 92;
const SHARES = 88;
/** Time in milliseconds after which a message says that the area is being measured. */
const BUSY_DELAY = 300;

export class Selection implements Page {
  private readonly root = byId("page-selection");
  private request: AbortController | null = null;
  private shownFor = "";
  /** Name of the histogram. */
  private histogramName = "";
  private statistics: Statistics | null = null;
  /** Lists, which are redrawn when more rows arrive. */
  private tables: Table[] = [];
  /** Whether all rows were requested. The first answer has the first rows only. */
  private hasRequestedAll = false;
  private waiting = 0;

  constructor(private readonly app: App) {
    app.on("area", () => this.show());
    app.on("shift", () => this.show());
    // An area that was measured while the trace was read is measured again at the end.
    app.on("info", () => {
      if (app.area !== null) this.show();
    });
    app.on("clock", () => this.show());
    app.on("theme", () => this.show());
  }

  show(): void {
    if (this.root.hidden) return;
    const { area } = this.app;
    const key = area === null ? "" : JSON.stringify([area, this.app.clock, this.app.info.progress >= 1, this.app.theme, this.app.offsetKey]);
    if (key === this.shownFor && area !== null) return;
    this.shownFor = key;
    this.request?.abort();
    window.clearTimeout(this.waiting);
    if (area === null) {
      this.statistics = null;
      this.root.dataset["ready"] = "empty";
      this.empty();
      return;
    }
    this.root.dataset["ready"] = "false";
    this.hasRequestedAll = false;
    this.waiting = window.setTimeout(() => this.wait(), BUSY_DELAY);
    void this.measure(area);
  }

  private wait(): void {
    if (this.root.querySelector(".measuring") === null) this.root.prepend(el("p", { class: "lead measuring", text: "measuring…" }));
  }

  private empty(): void {
    const whole = button("Measure the visible area", "All tracks on the screen", () => this.selectScreen());
    const words = el("p", { class: "lead" }, "Drag with ", el("kbd", { text: "Shift" }), " over the timeline, or along the ruler, to measure an area: times by state, percentiles, counts. ");
    fill(this.root, words, whole);
  }

  selectScreen(): void {
    const { view, info } = this.app;
    const [begin, end] = [Math.max(info.begin, Math.floor(view.begin)), Math.min(info.end, Math.ceil(view.end))];
    this.app.setArea({ begin, end, all: true, tracks: [] });
    this.app.openTab("selection");
  }

  private async measure(area: Area): Promise<void> {
    const request = new AbortController();
    this.request = request;
    try {
      this.statistics = sorted(await api.select(rangeOf(area), undefined, request.signal));
      window.clearTimeout(this.waiting);
      this.fill(this.statistics);
      this.root.dataset["ready"] = "true";
      if (this.statistics.events === null) await this.count(area, request);
    } catch (error) {
      if (wasAborted(error)) return;
      window.clearTimeout(this.waiting);
      fill(this.root, el("p", { class: "bad", text: reason(error) }));
      this.root.dataset["ready"] = "error";
    }
  }

  private fill(found: Statistics): void {
    this.tables = [];
    const head = this.head(found);
    const cards = el("div", { class: "cards" });
    cards.append(
      ...[
        this.waits(found),
        this.threads(found),
        this.cpus(found),
        this.durations("Spans", (now) => now.spans, found, found.counts.spans),
        this.durations("System calls", (now) => now.syscalls, found, found.counts.syscalls),
        this.durations("Interrupts", (now) => now.interrupts, found, found.counts.interrupts),
        this.events(found),
      ].filter((card): card is HTMLElement => card !== null),
    );
    fill(this.root, this.verdict(), head, cards);
  }

  /** Verdict on a monitor's incident in the words of `tompion explain`, with links to causes. */
  private verdict(): HTMLElement | null {
    const { incident } = this.app.info;
    const { area } = this.app;
    const isInArea = incident !== null && area !== null && area.begin < incident.end && incident.begin < area.end;
    if (!isInArea || incident.verdict === null) return null;
    const { percent: share, words } = incident.verdict;
    const section = el("section", { class: "verdict" }, el("p", { class: "answer", text: shorten(`${Math.round(share)} %: ${words}`, 400) }));
    const list = el("ul");
    for (const culprit of incident.culprits) {
      const text = shorten(`${culprit.percent.toFixed(1)} %  ${culprit.words}`, 200);
      const lane = this.laneOf(culprit.tid);
      list.append(el("li", {}, lane === null ? text : link(text, "Go to this thread at that time", () => this.app.jump(lane, culprit.time))));
    }
    section.append(list);
    return section;
  }

  /** Lane of a thread's states; null for causes that are no thread. */
  private laneOf(tid: number): number | null {
    if (tid <= 0) return null;
    for (const track of this.app.tracks.all.values()) {
      const lane = track.tid === tid ? track.lanes.find((candidate) => candidate.kind === "thread") : undefined;
      if (lane !== undefined) return lane.id;
    }
    return null;
  }

  /** Counts the events of some tracks, which the server reads part by part. */
  private async count(area: Area, request: AbortController): Promise<void> {
    for (;;) {
      const answer = await api.counts(rangeOf(area), request.signal).catch((error: unknown) => {
        if (!wasAborted(error)) this.app.showMessage(`events not counted: ${reason(error)}`);
        return null;
      });
      if (answer === null || request !== this.request || this.statistics === null) return;
      const { events, continue: more, scanned } = answer;
      this.statistics.events = events;
      const share = more ? `, ${Math.floor(scanned * 100)} % counted so far` : "";
      const old = this.root.querySelector(".events-card");
      const now = this.events(this.statistics, share);
      if (now !== null && old !== null) old.replaceWith(now);
      else if (now !== null) this.root.querySelector(".cards")?.append(now);
      this.tables = this.tables.filter((table) => table.element.isConnected);
      if (!more) return;
    }
  }

  /** Requests all rows once the user scrolls to rows that are missing. */
  private async requestAll(): Promise<void> {
    const { area } = this.app;
    const counts = this.statistics?.counts;
    if (this.hasRequestedAll || area === null || counts === undefined) return;
    this.hasRequestedAll = true;
    const request = this.request;
    try {
      const most = Math.max(...Object.values(counts));
      const found = sorted(await api.select(rangeOf(area), most, request?.signal));
      if (request !== this.request) return;
      this.statistics = { ...found, events: found.events ?? this.statistics?.events ?? null };
      for (const table of this.tables) table.redraw();
    } catch (error) {
      if (!wasAborted(error)) this.app.showMessage(`some rows are missing: ${reason(error)}`);
    }
  }

  /** Creates a list of any length. `of` selects it from the statistics. */
  private list<T>(columns: Column[], count: number, of: (found: Statistics) => T[], cells: (one: T) => HTMLTableCellElement[]): HTMLElement {
    const table = new Table({
      columns,
      count,
      cells: (row) => {
        const one = this.statistics === null ? undefined : of(this.statistics)[row];
        return one === undefined ? null : cells(one);
      },
      missing: () => void this.requestAll(),
    });
    this.tables.push(table);
    return table.element;
  }

  private head(found: Statistics): HTMLElement {
    const { app } = this;
    const area = app.area;
    const head = el("div", { class: "selection-head" });
    if (area === null) return head;
    const clock = app.clockBase;
    const which = area.all ? "all tracks" : trackCountOf(app.tracks, area);
    head.append(
      el("h2", {}, el("strong", { text: duration(area.end - area.begin) }), el("span", { text: which })),
      el("span", { class: "muted", text: `${moment(clock, app.clock, area.begin)} – ${moment(clock, app.clock, area.end)}` }),
    );
    const lost = found.losses.events;
    if (lost > 0) head.append(el("span", { class: "bad", text: `${grouped(lost)} events lost here` }));
    const unread = unreadOf("it", [area.begin, area.end], found.known);
    if (unread !== "") head.append(el("span", { class: "bad unread", text: `${unread}; measured again once all is read` }));
    if (found.partial) head.append(...merged(app, area, found));
    const tools = el("span", { class: "tools" });
    tools.append(
      button("Zoom to area", "F", () => app.view.fit(area.begin, area.end)),
      button("Flame graph", "Spans in the area, by stack", () => app.setTab("flame")),
      ...exportButtons(app, area),
      button("Clear", "Esc", () => app.setArea(null)),
    );
    head.append(tools);
    return head;
  }

  private waits(found: Statistics): HTMLElement | null {
    const waits = found.waits.slice(0, 20);
    if (waits.length === 0) return null;
    const table = el("table", { class: "list" });
    table.append(headings(["", "thread", "waited", "reason"], ["waited"]));
    for (const wait of waits) {
      const go = (): void => this.app.jump(wait.lane, wait.begin, wait);
      const name = link(`${shorten(wait.name, 40)} ${wait.tid}`, "Show it", go);
      table.append(
        el("tr", {}, el("td", {}, patch(this.app, wait.style)), el("td", {}, name), number(duration(wait.end - wait.begin)), el("td", { class: "words", text: shorten(wait.why ?? "", 120) })),
      );
    }
    return card("Waited longest for a CPU", el("div", { class: "scrolls" }, table), "wide waits");
  }

  private threads(found: Statistics): HTMLElement | null {
    if (found.threads.length === 0) return null;
    const count = found.counts.threads;
    const columns = [{ title: "thread" }, { title: "time by state", width: SHARES }, ...["running", "runnable", "preempted", "sleeping", "uninterr."].map((title) => ({ title, width: TIME }))];
    const rows = this.list(columns, count, (now) => now.threads, (thread) => {
      const name = link(`${shorten(thread.name, 40)} ${thread.tid}`, "Go to its track", () => this.app.reveal(thread.track));
      const times = [thread.running, thread.ready, thread.preempted, thread.blocked, thread.io];
      return [el("td", {}, name), el("td", {}, this.bar(thread)), ...times.map((time) => number(atLeast(time, thread.mixed)))];
    });
    return card(`Threads: ${grouped(count)}`, rows, "wide");
  }

  private bar(thread: ThreadTimes): HTMLElement {
    const parts: [number, number][] = [
      [Style.running, thread.running],
      [Style.runnablePreempted, thread.preempted],
      [Style.runnable, thread.ready],
      [Style.sleeping, thread.blocked],
      [Style.uninterruptible, thread.io],
      [Style.stopped, thread.stopped],
      [Style.unknown, thread.unknown],
    ];
    const mixed = thread.mixed;
    const whole = parts.reduce((sum, [, time]) => sum + time, mixed);
    const bar = el("span", { class: "shares" });
    for (const [style, time] of parts) {
      if (time <= 0) continue;
      // Time before the first run counts as stopped.
      const word = style === Style.stopped ? "Stopped or new" : styleWord(style);
      const part = el("i", { title: `${word} ${duration(time)}, ${percent(time, whole)}` });
      part.style.width = `${(time / whole) * 100}%`;
      part.style.backgroundColor = this.app.palette.states[style] ?? "";
      bar.append(part);
    }
    if (mixed > 0) {
      const part = el("i", { title: `merged (too short to measure): ${duration(mixed)}, ${percent(mixed, whole)}` });
      part.style.width = `${(mixed / whole) * 100}%`;
      bar.append(part);
    }
    return bar;
  }

  private cpus(found: Statistics): HTMLElement | null {
    if (found.cpus.length === 0) return null;
    const table = el("table", { class: "list" });
    table.append(headings(["CPU", "busy", "", "interrupts"], ["busy", "interrupts"]));
    for (const cpu of found.cpus) {
      const mixed = cpu.mixed;
      const whole = cpu.busy + cpu.idle + cpu.unknown + mixed;
      const busy = mixed > 0 ? `${percent(cpu.busy, whole)} – ${percent(cpu.busy + mixed, whole)}` : percent(cpu.busy, whole);
      const bar = el("span", { class: "shares" });
      const part = el("i");
      part.style.width = `${whole > 0 ? (cpu.busy / whole) * 100 : 0}%`;
      part.style.backgroundColor = this.app.palette.states[Style.running] ?? "";
      bar.append(part);
      table.append(el("tr", {}, el("td", { text: String(cpu.cpu) }), number(busy), el("td", {}, bar), number(durationOrDash(cpu.interrupts))));
    }
    return card("CPUs", el("div", { class: "scrolls" }, table));
  }

  private durations(title: string, of: (found: Statistics) => DurationStats[], found: Statistics, count: number): HTMLElement | null {
    const all = of(found);
    const [first] = all;
    if (first === undefined) return null;
    const place = el("div", { class: "histogram-place" });
    const choose = (one: DurationStats): void => {
      this.histogramName = one.name;
      fill(place, shown(one));
    };
    const shown = (one: DurationStats): HTMLElement => (one.merged > 0 || one.count === 0 ? countOf(one) : histogram(this.app, one));
    const columns = [{ title: "name" }, { title: "count", width: COUNT }, ...["median", "p99", "max", "total"].map((heading) => ({ title: heading, width: TIME }))];
    const rows = this.list(columns, count, of, (one) => {
      const name = link(shorten(one.name, 60), "Histogram of its durations", () => choose(one));
      const longest = one.longest;
      const most = longest ? link(durationOrDash(one.max), "Jump to the longest one", () => this.app.jump(longest.lane, longest.begin, longest)) : durationOrDash(one.max);
      const finished = one.merged > 0 ? `≈ ${grouped(one.count)}` : grouped(one.count);
      const open = one.unfinished;
      const count = open > 0 ? `${finished} + ${grouped(open)} open` : finished;
      return [el("td", {}, name), open > 0 ? openCount(count, one) : number(count), number(durationOrDash(one.p50)), number(durationOrDash(one.p99)), el("td", { class: "number" }, most), number(durationOrDash(one.total))];
    });
    const isWhole = (one: DurationStats): boolean => one.count > 1 && one.merged === 0;
    const begun = all.find((one) => one.name === this.histogramName) ?? all.find(isWhole) ?? first;
    fill(place, shown(begun));
    return card(`${title}: ${grouped(count)}`, el("div", {}, place, rows), "wide");
  }

  private events(found: Statistics, share = ""): HTMLElement | null {
    const { events } = found;
    if (events === null || events.length === 0) return null;
    const rows = this.list([{ title: "name" }, { title: "count", width: 100 }], events.length, (now) => now.events ?? [], ([name, count]) => [
      el("td", { text: shorten(name, 80), title: name }),
      number(grouped(count)),
    ]);
    const sum = events.reduce((total, [, count]) => total + count, 0);
    return card(`Events: ${grouped(sum)}${share}`, rows, "events-card");
  }
}

/** Message that only a part of a time range is read; empty if all of it is. */
export function unreadOf(what: string, [begin, end]: readonly [number, number], known: number | undefined): string {
  if (known === undefined || known >= end) return "";
  const share = Math.floor((Math.max(0, known - begin) / Math.max(1, end - begin)) * 100);
  return share === 0 ? `none of ${what} is read so far` : `only the first ${share} % of ${what} is read so far`;
}

/** Message that slices of a large area were merged, with a button for a smaller one. */
function merged(app: App, area: Area, found: Statistics): HTMLElement[] {
  const narrow = duration(found.narrow);
  const text = `a large area: slices of ${narrow} or longer were measured; shorter ones are only counted`;
  const title = "Shorter slices were merged; each group counts for its most frequent name";
  const words = el("span", { class: "bad", text, title });
  // The length is an estimate, hence the margin.
  const exact = Math.floor(found.exact * 0.8);
  if (exact <= 0 || exact >= area.end - area.begin) return [words];
  const begin = Math.floor((area.begin + area.end - exact) / 2);
  const go = (): void => {
    app.view.fit(begin, begin + exact);
    app.setArea({ ...area, begin, end: begin + exact });
  };
  return [words, button(`Measure ${duration(exact)} of it`, "The middle part, small enough to be measured completely", go)];
}

/** Text of a duration, to which a part of the merged time may belong. */
function atLeast(time: number, mixed: number): string {
  return mixed > 0 ? `≥ ${duration(time)}` : duration(time);
}

/** Text in place of a histogram, if durations are unknown. */
function countOf(one: DurationStats): HTMLElement {
  const text = one.count === 0 ? ` ${grouped(one.unfinished)} times without an observed begin or end` : ` about ${grouped(one.count)} times; select a smaller area to measure durations`;
  return el("div", { class: "histogram" }, el("div", { class: "histogram-title" }, el("b", { text: shorten(one.name, 60) }), text));
}

/** Sorts lists, largest first. Names with merged slices have no times and come first, by count. */
function sorted(found: Statistics): Statistics {
  const oftenIn = (one: DurationStats): number => (one.merged > 0 ? one.count : 0);
  const byTotal = (all: DurationStats[]): DurationStats[] => [...all].sort((a, b) => oftenIn(b) - oftenIn(a) || (b.total ?? 0) - (a.total ?? 0));
  return {
    ...found,
    threads: [...found.threads].sort((a, b) => b.running - a.running || b.mixed - a.mixed),
    events: found.events === null ? null : [...found.events].sort((a, b) => b[1] - a[1]),
    spans: byTotal(found.spans),
    syscalls: byTotal(found.syscalls),
    interrupts: byTotal(found.interrupts),
  };
}

/** Cell of a count that includes slices without an observed begin or end. */
function openCount(text: string, one: DurationStats): HTMLTableCellElement {
  const cell = number(text);
  cell.title = `${grouped(one.unfinished)} without an observed begin or end, in no percentile and no total: at least ${duration(one.unfinished_total)}`;
  return cell;
}

function number(text: string): HTMLTableCellElement {
  return el("td", { class: "number", text });
}

/** Row of headings; those of numbers are aligned right. */
function headings(names: string[], numbers: string[]): HTMLElement {
  return el("tr", {}, ...names.map((text) => el("th", { text, class: numbers.includes(text) ? "number" : "" })));
}

function card(title: string, content: HTMLElement, className = ""): HTMLElement {
  return el("section", { class: `card ${className}` }, el("h3", { text: title }), content);
}
