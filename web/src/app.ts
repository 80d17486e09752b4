// What the page knows, and whom it tells when that changes.

import { api, reason, Refused, type Stretch } from "./data/api";
import { Channel } from "./data/channel";
import { type Palette, paletteOf, type Theme } from "./draw/colours";
import type { Reading } from "./data/reading";
import { Tiles } from "./data/tiles";
import { type Clock, type ClockBase, grouped } from "./data/time";
import { Tracks } from "./data/tracks";
import { View } from "./data/view";
import { keysOf, mergeNotes } from "./data/merge";
import { type Interval, type LaneKind, type Note, Style, type TraceInfo } from "./data/wire";

/** A click counts as on a box that is nearer than the screen's width divided by this. */
const NEAR = 500;

/** So often are notes written anew together with those that others wrote meanwhile. */
const MOST_ATTEMPTS = 5;

/** What a lane that has nothing at a moment says by that: its boxes are all that was recorded of
 * their kind. */
const NOTHING: Partial<Record<LaneKind, [string, string]>> = {
  interrupt: ["no interrupt", "None was recorded on this CPU at this time."],
  softirq: ["no softirq", "None was recorded on this CPU at this time."],
  syscall: ["no system call", "No recorded system call of this thread covers this time."],
  span: ["no span", "No recorded span is open at this time."],
  marks: ["no event", "No event was recorded here at this time."],
};

/** A box that was chosen; its particulars come later. */
export interface Selected {
  lane: number;
  begin: number;
  end: number;
  style: number;
  label: string;
  detail: Interval | null;
  error: string;
}

/** A stretch of time: of all tracks, or of some with all that stands below them. */
export interface Area {
  begin: number;
  end: number;
  all: boolean;
  tracks: number[];
}

/** An area as the server is asked for it. */
export function stretchOf({ begin, end, all, tracks }: Area): Stretch {
  return all ? { from: begin, to: end } : { from: begin, to: end, tracks: tracks.join(",") };
}

/** How many tracks an area is of. */
export function tracksOf(tracks: Tracks, area: Area): string {
  const known = counted.get(area);
  if (known?.stamp === tracks.stamp) return known.text;
  const among = new Set(area.tracks);
  let count = 0;
  for (const { id, lanes } of tracks.all.values()) if (lanes.length > 0 && tracks.isIn(id, among)) count += 1;
  const text = `${grouped(count)} track${count === 1 ? "" : "s"}`;
  counted.set(area, { stamp: tracks.stamp, text });
  return text;
}

/** To count a hundred thousand of them takes its time. */
const counted = new WeakMap<Area, { stamp: number; text: string }>();

/** Tracks by what they are, whatever their numbers. */
export interface Awaited {
  pinned: string[];
  open: string[];
  area: { begin: number; end: number; tracks: string[] } | null;
  selected: { lane: string; at: number } | null;
}

export const TABS = ["detail", "selection", "events", "flame", "notes"] as const;
export type Tab = (typeof TABS)[number];
export type Topic = "info" | "tracks" | "view" | "selected" | "area" | "theme" | "clock" | "notes" | "tab" | "message" | "hover" | "shift" | "unfold" | "asked";

/** What the pointer is over. */
export interface Hover {
  time: number;
  x: number;
  y: number;
  lane: number;
  box: { begin: number; end: number; style: number; label: string; count: number } | null;
  /** What a lane without boxes says there. */
  reading: Reading | null;
}

export class App {
  info: TraceInfo = {
    version: 1, base: "0", begin: 0, end: 1, progress: 0, growing: false, name: "", traces: [], events: 0,
    losses: { events: 0 },
  };
  readonly tracks = new Tracks();
  readonly view: View;
  readonly tiles: Tiles;
  theme: Theme = "light";
  clock: Clock = "relative";
  selected: Selected | null = null;
  area: Area | null = null;
  hover: Hover | null = null;
  notes: Note[] = [];
  tab: Tab = "detail";
  arrows = true;
  /** The track that keys act on. */
  current = -1;
  /** The timeline's height of scroll, in pixels. */
  scroll = 0;
  /** What the table of events shows, and what the search looks for. */
  table = { filter: "", names: "" };
  sought = "";
  /** What a link names that nobody knows yet, since the trace is still being read. */
  awaited: Awaited = { pinned: [], open: [], area: null, selected: null };
  /** A moment to look at: where a search or a row of the table led. */
  cursor: number | null = null;
  private readonly listeners = new Map<Topic, (() => void)[]>();
  private drawAsked = false;
  /** Who draws, once there is something to be drawn. */
  private drawer: (() => void) | null = null;
  private selection = 0;
  /** The notes that are kept, as they were read or written last; no version before they were. */
  private keptNotes: { version: string | null; keys: Set<string> } = { version: null, keys: new Set() };
  private saving = false;
  private unsaved = false;

  constructor() {
    this.view = new View(() => this.draw());
    const worker = new Worker(new URL("./data/worker.ts", import.meta.url), { type: "module" });
    this.tiles = new Tiles(new Channel(worker), () => this.draw());
  }

  get palette(): Palette {
    return paletteOf(this.theme);
  }

  get clockBase(): ClockBase {
    return { base: BigInt(this.info.base), begin: this.info.begin, ahead: this.info.timezone_offset_s ?? 0 };
  }

  on(topic: Topic, listener: () => void): void {
    const all = this.listeners.get(topic) ?? [];
    all.push(listener);
    this.listeners.set(topic, all);
  }

  tell(topic: Topic): void {
    for (const listener of this.listeners.get(topic) ?? []) listener();
    this.draw();
  }

  /** Who draws a frame. */
  drawnBy(drawer: () => void): void {
    this.drawer = drawer;
    this.draw();
  }

  /** Asks for a frame; more than one in a frame's time are one. */
  draw(): void {
    const { drawer } = this;
    if (this.drawAsked || drawer === null) return;
    this.drawAsked = true;
    requestAnimationFrame(() => {
      this.drawAsked = false;
      drawer();
    });
  }

  /** A line for the reader, at the bottom of the page. */
  message = "";
  say(line: string): void {
    this.message = line;
    this.tell("message");
  }

  /** Shows a tab that somebody asked for, also in a panel that is folded away. */
  openTab(tab: Tab): void {
    this.tell("unfold");
    this.setTab(tab);
  }

  setTab(tab: Tab): void {
    this.tab = tab;
    this.tell("tab");
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    document.documentElement.dataset["theme"] = theme;
    this.tell("theme");
  }

  setClock(clock: Clock): void {
    this.clock = clock;
    this.tell("clock");
  }

  setArea(area: Area | null): void {
    if (area === null) this.awaited.area = null;
    this.area = area;
    this.tell("area");
    if (area !== null && this.tab === "detail") this.setTab("selection");
  }

  /** Chooses what is on a lane at a moment; its particulars are asked for. */
  async select(lane: number, time: number, guess?: Partial<Selected>): Promise<void> {
    const number = ++this.selection;
    const kind = this.tracks.laneKind.get(lane)?.kind;
    const style = kind === "counter" ? Style.counter : kind === "density" ? Style.density : Style.unknown;
    this.awaited.selected = null;
    this.selected = { lane, begin: time, end: time, style, label: "", detail: null, error: "", ...guess };
    this.current = this.tracks.laneTrack.get(lane) ?? this.current;
    // Who reads the table of events stays there: it goes to the box, too.
    if (this.tab !== "detail" && this.tab !== "events") this.setTab("detail");
    this.tell("selected");
    let [detail, error, word]: [Interval | null, string, string] = [null, "", ""];
    try {
      const answer = await api.at(lane, time, this.view.span / NEAR);
      if (answer.none !== true && typeof answer.begin === "number") detail = answer;
      else [word, error] = this.nothing(kind);
    } catch (failure) {
      error = reason(failure);
    }
    if (number !== this.selection || this.selected === null) return;
    this.selected.error = error;
    if (word !== "") this.selected.label = word;
    if (detail !== null) {
      const { begin, end, style, label } = detail;
      this.selected = { lane, begin, end, style, label: label ?? "", detail, error: "" };
    }
    this.tell("selected");
  }

  /** What it means that a lane has nothing somewhere: a word, and a line. */
  private nothing(kind: LaneKind | undefined): [string, string] {
    // What wasn't read yet may have something.
    const told = kind === undefined || this.info.progress < 1 ? undefined : NOTHING[kind];
    return told ?? ["", "Nothing is recorded here at this time."];
  }

  unselect(): void {
    this.selection += 1;
    this.selected = null;
    this.tell("selected");
  }

  /** By how much traces are shifted, for those who remember what they asked for. */
  get shifts(): string {
    return this.info.traces.map((part) => part.offset).join();
  }

  /** Traces were shifted: what was chosen may stand elsewhere, and the whole reaches elsewhere. */
  shifted(): void {
    this.cursor = null;
    this.unselect();
    this.view.limit(this.info.begin, this.info.end);
    this.tiles.clear();
    this.tell("shift");
    this.tell("info");
  }

  /** Tracks may be gone: what is chosen of the others stays chosen. */
  forgetGone(): void {
    const isThere = (lane: number): boolean => this.tracks.laneTrack.has(lane);
    if (this.selected !== null && !isThere(this.selected.lane)) this.selected = null;
    const { area } = this;
    if (area === null || area.all) return;
    area.tracks = area.tracks.filter((track) => this.tracks.all.has(track));
    // Nothing is left of it; of no tracks is not of all.
    if (area.tracks.length === 0) this.setArea(null);
  }

  /** Scrolls so that a track can be seen, and its folded parents open. */
  reveal: (track: number) => void = () => {};

  /** Goes to a lane and moment, and chooses what is there. */
  jump(lane: number, time: number, place?: { begin: number; end: number }): void {
    const track = this.tracks.laneTrack.get(lane);
    if (track !== undefined) this.reveal(track);
    if (place !== undefined) this.view.fit(place.begin, Math.max(place.end, place.begin + 1));
    else this.view.show(time, time);
    void this.select(lane, time, place ?? {});
  }

  /** Takes the notes that are kept; what was written here meanwhile stays. */
  async loadNotes(): Promise<void> {
    const { version, notes, remark } = await api.notes();
    this.notes = mergeNotes(this.keptNotes.keys, this.notes, notes);
    this.keptNotes = { version, keys: keysOf(notes) };
    if (typeof remark === "string") this.say(remark);
    this.tell("notes");
  }

  /** Saves notes, one version after the other. */
  async saveNotes(): Promise<void> {
    this.notes.sort((a, b) => a.time - b.time);
    this.tell("notes");
    this.unsaved = true;
    if (this.saving) return;
    this.saving = true;
    try {
      while (this.unsaved) {
        this.unsaved = false;
        await this.writeNotes();
      }
    } catch (failure) {
      this.say(`notes were not saved: ${reason(failure)}`);
    } finally {
      this.saving = false;
    }
  }

  /** Writes the notes in the place of those that were read; where others have written some
   * meanwhile, with these. */
  private async writeNotes(): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      if (this.keptNotes.version === null || attempt > 0) await this.loadNotes();
      const [version, keys] = [this.keptNotes.version ?? "", keysOf(this.notes)];
      try {
        const written = await api.saveNotes(version, this.notes);
        this.keptNotes = { version: written.version, keys };
        if (typeof written.remark === "string") this.say(written.remark);
        return;
      } catch (failure) {
        const isOld = failure instanceof Refused && failure.status === 409;
        if (!isOld || attempt >= MOST_ATTEMPTS) throw failure;
      }
    }
  }
}
