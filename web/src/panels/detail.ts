// Tab "Detail": everything known about the selected slice, and its cause.

import { styleWord } from "../draw/colours";
import type { App, Selected } from "../app";
import { isolate, button, byId, el, fill, link, shorten } from "../dom";
import { legend, patchOf } from "./legend";
import type { Page } from "./panel";
import { amountsText, valueText } from "../data/reading";
import { duration, moment, timeOfDay } from "../data/time";
import { type SliceBrief, type SliceDetail, STATE_WORDS, Style, type ThreadLink } from "../data/wire";

const HINTS: Record<number, string> = {
  [Style.runnable]: "It was ready to run and had to wait for a CPU.",
  [Style.runnablePreempted]: "It was ready to run, but another thread had its CPU.",
  [Style.sleeping]: "It was asleep until an event woke it.",
  [Style.uninterruptible]: "It was asleep, and signals could not wake it: it waited for a disk, a lock or memory.",
  [Style.lost]: "Events were discarded here: what happened is unknown.",
  [Style.overwritten]: "The flight recorder replaced this history with newer events.",
};

export class Detail implements Page {
  private readonly root = byId("page-detail");

  constructor(private readonly app: App) {
    app.on("selected", () => this.show());
    app.on("clock", () => this.show());
    app.on("theme", () => this.show());
  }

  show(): void {
    if (this.root.hidden) return;
    const { selected } = this.app;
    this.root.dataset["lane"] = selected === null ? "" : String(selected.lane);
    this.root.dataset["ready"] = String(selected !== null && (selected.detail !== null || selected.error !== ""));
    this.announce(selected);
    if (selected === null) this.empty();
    else if (selected.detail === null) fill(this.root, el("div", {}, this.heading(selected), el("p", { class: "muted", text: selected.error || "…" })));
    else this.fill(selected, selected.detail);
  }

  /** Announces the selection to screen readers. */
  private announce(selected: Selected | null): void {
    if (selected === null) return;
    if (selected.detail === null) {
      if (selected.error !== "") byId("announce").textContent = shorten([selected.label, selected.error].filter(Boolean).join(": "), 400);
      return;
    }
    const { style, label, begin, end, detail } = selected;
    const { clockBase, clock } = this.app;
    const length = end > begin ? duration(end - begin) : "";
    const parts = [label, styleWord(style), this.valueOf(detail), length, `at ${moment(clockBase, clock, begin)}`, detail.why ?? ""];
    byId("announce").textContent = shorten(parts.filter(Boolean).join(", "), 400);
  }

  private empty(): void {
    const key = (text: string): HTMLElement => el("kbd", { text });
    const words = el("p", { class: "lead" }, "Click a slice to see what it is and why. ", key("W"), key("A"), key("S"), key("D"));
    words.append(" or the wheel move through time, ", key("Shift"), "-drag measures an area, ", key("E"), " lists the longest waits for a CPU, ", key("?"), " shows all keys.");
    const more = button("Full legend", "Every colour and mark (L)", () => byId("legend-button").click());
    more.classList.add("more");
    const brief = legend(this.app, true);
    brief.lastElementChild?.append(more);
    fill(this.root, words, brief);
  }

  private heading(selected: Selected): HTMLElement {
    const name = selected.label === "" ? styleWord(selected.style) : selected.label;
    // An absent slice has no colour.
    const swatch = selected.error === "" ? patchOf(this.app, selected.lane, selected.style, selected.label) : null;
    const title = el("h2", {}, swatch, el("span", { text: shorten(name, 300) }));
    if (swatch !== null && name !== styleWord(selected.style)) title.append(el("small", { text: styleWord(selected.style) }));
    const length = selected.end - selected.begin;
    if (length > 0) title.append(el("strong", { text: duration(length) }));
    return title;
  }

  private fill(selected: Selected, detail: SliceDetail): void {
    const left = el("div", { class: "column why" }, this.heading(selected), this.cause(detail), this.surroundings(detail));
    const right = el("div", { class: "column" }, this.facts(detail));
    fill(this.root, left, right);
  }

  /** Cause of the slice: the answer that most users look for. */
  private cause(detail: SliceDetail): HTMLElement {
    const block = el("div", { class: "reason" });
    const line = whyText(detail) || this.valueOf(detail);
    const hint = HINTS[detail.style] ?? "";
    if (line !== "") block.append(el("p", { class: "answer", text: sentence(line), data: { why: detail.why ?? line } }));
    if (hint !== "") block.append(el("p", { class: "muted", text: hint }));
    const links = el("p", { class: "links" });
    const { waker, during, thread } = detail;
    this.shares(detail, links);
    if (waker !== undefined) links.append(this.threadLink("woken by ", waker, detail.end, "waker"));
    if (during !== undefined) links.append(this.threadLink("ran when it was woken: ", during, detail.end, "during"));
    if (thread !== undefined && thread.lane !== null && thread.lane !== detail.lane) {
      links.append(this.threadLink("thread ", thread, detail.begin, "thread"));
    }
    if (links.childElementCount > 0) block.append(links);
    if (block.childElementCount === 0) {
      const where = detail.style === Style.running && detail.cpu !== undefined ? `on CPU ${detail.cpu}` : STATE_WORDS[detail.style]?.[1];
      block.append(el("p", { class: "muted", text: sentence(where ?? "") }));
    }
    return block;
  }

  /** Value of a counter, or event counts of a channel. */
  private valueOf({ counts, track, value, range }: SliceDetail): string {
    if (counts !== undefined) return counts.lost + counts.overwritten > 0 ? `${amountsText(counts)} here` : amountsText(counts);
    return range === undefined ? "" : valueText(value, range, this.app.tracks.all.get(track)?.unit ?? "");
  }

  /** Links to the threads that ran during the wait, with their shares of it. */
  private shares(detail: SliceDetail, links: HTMLElement): void {
    const length = detail.end - detail.begin;
    const ran = detail.ran ?? [];
    // No event says on which CPU a woken thread waits, only where it runs next.
    const isWoken = detail.style === Style.runnable;
    if (isWoken && ran.length > 0) links.append(el("span", { class: "muted", text: "meanwhile, on the CPU where it ran next:" }));
    for (const [place, thread] of ran.entries()) {
      const share = length > 0 ? Math.round(((thread.ns ?? 0) * 100) / length) : 0;
      const chip = this.threadLink("ran ", thread, detail.begin, place === 0 ? "culprit" : "ran");
      chip.append(` ${share} %, ${duration(thread.ns ?? 0)}`);
      links.append(chip);
    }
    const others = detail.ran_others ?? 0;
    if (others > 0) links.append(el("span", { class: "muted", text: `and ${others} more` }));
  }

  private threadLink(word: string, thread: ThreadLink, fallback: number, role: string): HTMLElement {
    const name = shorten(thread.name, 80);
    const text = thread.tid !== null ? `${name} ${thread.tid}` : name;
    const { lane } = thread;
    if (lane === null) return el("span", { class: "chip", data: { role } }, word, el("b", { text }));
    const chip = link(text, "Go to this thread at that time", () => this.app.jump(lane, thread.time ?? fallback));
    chip.dataset["role"] = role;
    return el("span", { class: "chip" }, word, chip);
  }

  private surroundings(detail: SliceDetail): HTMLElement {
    const list = el("div", { class: "around" });
    const part = (word: string, other: SliceBrief | null): void => {
      if (other === null) return;
      const label = other.label === "" ? styleWord(other.style) : other.label;
      const click = (): void => this.app.jump(detail.lane, other.begin);
      const name = link(shorten(label, 60), "Select it", click);
      list.append(el("div", {}, el("span", { class: "muted", text: word }), patchOf(this.app, detail.lane, other.style, other.label), name, el("span", { text: neighbourText(detail, other) })));
    };
    part("before", detail.before);
    part("after", detail.after);
    return list;
  }

  private facts(detail: SliceDetail): HTMLElement {
    const { app } = this;
    const table = el("table", { class: "facts" });
    const row = (name: string, value: string | Node): void => {
      table.append(el("tr", {}, el("th", { text: shorten(name, 120) }), el("td", {}, value)));
    };
    const [beginIsKnown, endIsKnown] = detail.seen;
    const clock = app.clockBase;
    row("start", `${moment(clock, app.clock, detail.begin)}${beginIsKnown ? "" : " or earlier"}`);
    if (app.clock === "relative") row("time of day", timeOfDay(clock, detail.begin, false));
    if (detail.end > detail.begin) {
      row("end", `${moment(clock, app.clock, detail.end)}${endIsKnown ? "" : " or later"}`);
      row("duration", duration(detail.end - detail.begin));
    }
    const { thread } = detail;
    if (thread !== undefined) row("thread", `${shorten(thread.name, 80)} ${thread.tid}`);
    // Kernel traces may not name the process.
    if (thread !== undefined && thread.pid !== null) row("process", String(thread.pid));
    if (detail.cpu !== undefined) row("CPU", String(detail.cpu));
    for (const [name, value] of detail.fields) row(name, el("span", { class: "value", text: shorten(value, 4000) }));
    return table;
  }
}

/** Duration of a neighbouring slice, or the distance of an event. */
export function neighbourText(detail: Pick<SliceDetail, "begin" | "end">, { begin, end }: Pick<SliceBrief, "begin" | "end">): string {
  if (end > begin) return duration(end - begin);
  return begin < detail.begin ? `${duration(detail.begin - begin)} earlier` : `${duration(begin - detail.begin)} later`;
}

/** Sentence that gives the cause, with names isolated from the numbers after them. */
export function whyText({ why = "", waker, culprit, thread }: Pick<SliceDetail, "why" | "waker" | "culprit" | "thread">): string {
  const names = new Set([waker?.name, culprit?.name, thread?.name, /by (.*) \(tid \d+\)/.exec(why)?.[1]]);
  let line = why;
  for (const name of names) if (name !== undefined && name !== "" && isolate(name) !== name) line = line.replaceAll(name, isolate(name));
  return line;
}

function sentence(line: string): string {
  return line.charAt(0).toUpperCase() + line.slice(1);
}
