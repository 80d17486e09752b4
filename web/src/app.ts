// State of the page, and notification of the parts that show it.

import { api, reason, ServerError, type TimeRange } from "./data/api";
import { Channel } from "./data/channel";
import { type Palette, paletteOf, type Theme } from "./draw/colours";
import type { Reading } from "./data/reading";
import { Tiles } from "./data/tiles";
import { type Clock, type ClockBase, grouped } from "./data/time";
import { Tracks } from "./data/tracks";
import { View } from "./data/view";
import { keysOf, mergeNotes } from "./data/merge";
import { type LaneKind, type Note, type SliceDetail, Style, type TraceOverview } from "./data/wire";

/** A click selects a slice within this share of the screen's width. */
const NEAR_SHARE = 1 / 500;

/** Attempts to merge notes with those that other pages saved meanwhile. */
const MAX_SAVE_ATTEMPTS = 5;

/** Meaning of a time without slices, for lanes that show everything recorded of their kind: a word
 * and a sentence. */
const ABSENCE: Partial<Record<LaneKind, [string, string]>> = {
  interrupt: ["No interrupt", "None was recorded on this CPU at this time."],
  softirq: ["No softirq", "None was recorded on this CPU at this time."],
  syscall: ["No system call", "No recorded system call of this thread covers this time."],
  span: ["No span", "No recorded span is open at this time."],
  marks: ["No event", "No event was recorded here at this time."],
};

/** Selected slice. Its detail is requested from the server. */
export interface Selected {
  lane: number;
  begin: number;
  end: number;
  style: number;
  label: string;
  detail: SliceDetail | null;
  error: string;
}

/** Time range of all tracks, or of some tracks with everything below them. */
export interface Area {
  begin: number;
  end: number;
  all: boolean;
  tracks: number[];
}

/** Request parameters of an area. */
export function rangeOf({ begin, end, all, tracks }: Area): TimeRange {
  return all ? { from: begin, to: end } : { from: begin, to: end, tracks: tracks.join(",") };
}

/** Number of tracks in an area, as text. */
export function trackCountOf(tracks: Tracks, area: Area): string {
  const known = counted.get(area);
  if (known?.stamp === tracks.stamp) return known.text;
  const among = new Set(area.tracks);
  let count = 0;
  for (const { id, lanes } of tracks.all.values()) if (lanes.length > 0 && tracks.isIn(id, among)) count += 1;
  const text = `${grouped(count)} track${count === 1 ? "" : "s"}`;
  counted.set(area, { stamp: tracks.stamp, text });
  return text;
}

/** Cached counts, since an area may have a hundred thousand tracks. */
const counted = new WeakMap<Area, { stamp: number; text: string }>();

/** Tracks that a link names and that are not known yet. */
export interface PendingLink {
  pinned: string[];
  open: string[];
  area: { begin: number; end: number; tracks: string[] } | null;
  selected: { lane: string; at: number } | null;
}

export const TABS = ["detail", "selection", "events", "flame", "notes"] as const;
export type Tab = (typeof TABS)[number];
export type Topic = "info" | "tracks" | "view" | "selected" | "area" | "theme" | "clock" | "notes" | "tab" | "message" | "hover" | "shift" | "unfold" | "link";

/** Position of the pointer, and what is below it. */
export interface Hover {
  time: number;
  x: number;
  y: number;
  lane: number;
  slice: { begin: number; end: number; style: number; label: string; count: number } | null;
  /** Value on a lane without slices. */
  reading: Reading | null;
}

/** Description before the server has answered. */
export const EMPTY_OVERVIEW: TraceOverview = {
  version: 1, generation: 0, base: "0", begin: 0, end: 1, progress: 0, growing: false, glimpses: 0, seen: [],
  lanes: -1, name: "", traces: [], events: 0, losses: { events: 0, packets: 0, overwritten: 0 }, damages: [],
  disorders: [], timezone_offset_s: 0, gone: null, error: null, incident: null, commands: [], processes: [],
  kept: null,
};

export class App {
  info: TraceOverview = EMPTY_OVERVIEW;
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
  /** Scroll position of the timeline, in pixels. */
  scroll = 0;
  /** Filters of the event table, and the text of the search. */
  table = { filter: "", names: "" };
  searchText = "";
  /** Tracks of a link that are not known yet, while the trace is being read. */
  pending: PendingLink = { pinned: [], open: [], area: null, selected: null };
  /** Time of the last search hit or table row. */
  cursor: number | null = null;
  private readonly listeners = new Map<Topic, (() => void)[]>();
  private isFrameRequested = false;
  /** Draws a frame; null until there is something to draw. */
  private frameDrawer: (() => void) | null = null;
  /** Number of the newest selection. */
  private selection = 0;
  /** Saved notes as last read or written; the version is null before that. */
  private savedNotes: { version: string | null; keys: Set<string> } = { version: null, keys: new Set() };
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

  notify(topic: Topic): void {
    for (const listener of this.listeners.get(topic) ?? []) listener();
    this.draw();
  }

  /** Sets the function that draws a frame. */
  setFrameDrawer(drawer: () => void): void {
    this.frameDrawer = drawer;
    this.draw();
  }

  /** Requests a frame, unless one is requested already. */
  draw(): void {
    const { frameDrawer } = this;
    if (this.isFrameRequested || frameDrawer === null) return;
    this.isFrameRequested = true;
    requestAnimationFrame(() => {
      this.isFrameRequested = false;
      frameDrawer();
    });
  }

  /** Line of text beside the tabs. */
  message = "";
  showMessage(line: string): void {
    this.message = line;
    this.notify("message");
  }

  /** Shows a tab, and the panel if it is hidden. */
  openTab(tab: Tab): void {
    this.notify("unfold");
    this.setTab(tab);
  }

  setTab(tab: Tab): void {
    this.tab = tab;
    this.notify("tab");
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    document.documentElement.dataset["theme"] = theme;
    this.notify("theme");
  }

  setClock(clock: Clock): void {
    this.clock = clock;
    this.notify("clock");
  }

  setArea(area: Area | null): void {
    if (area === null) this.pending.area = null;
    this.area = area;
    this.notify("area");
    if (area !== null && this.tab === "detail") this.setTab("selection");
  }

  /** Selects the slice of a lane at a time, and requests its detail. */
  async select(lane: number, time: number, guess?: Partial<Selected>): Promise<void> {
    const number = ++this.selection;
    const kind = this.tracks.laneKind.get(lane)?.kind;
    const style = kind === "counter" ? Style.counter : kind === "density" ? Style.density : Style.unknown;
    this.pending.selected = null;
    this.selected = { lane, begin: time, end: time, style, label: "", detail: null, error: "", ...guess };
    this.current = this.tracks.laneTrack.get(lane) ?? this.current;
    // The event table stays open: it follows the selection.
    if (this.tab !== "detail" && this.tab !== "events") this.setTab("detail");
    this.notify("selected");
    let [detail, error, word]: [SliceDetail | null, string, string] = [null, "", ""];
    try {
      const answer = await api.at(lane, time, this.view.span * NEAR_SHARE);
      if ("none" in answer) [word, error] = this.absence(kind);
      else detail = answer;
    } catch (failure) {
      error = reason(failure);
    }
    if (number !== this.selection || this.selected === null) return;
    this.selected.error = error;
    if (word !== "") this.selected.label = word;
    if (detail !== null) {
      const { begin, end, style, label } = detail;
      this.selected = { lane, begin, end, style, label, detail, error: "" };
    }
    this.notify("selected");
  }

  /** Word and sentence for a time at which a lane has no slice. */
  private absence(kind: LaneKind | undefined): [string, string] {
    // The part may not be read yet.
    const known = kind === undefined || this.info.progress < 1 ? undefined : ABSENCE[kind];
    return known ?? ["", "Nothing is recorded here at this time."];
  }

  unselect(): void {
    this.selection += 1;
    this.selected = null;
    this.notify("selected");
  }

  /** Offsets of all traces as text, to notice changes. */
  get offsetKey(): string {
    return this.info.traces.map((part) => part.offset).join();
  }

  /** Updates the page after traces were shifted: the selection and the limits may have moved. */
  applyShift(): void {
    this.cursor = null;
    this.unselect();
    this.view.limit(this.info.begin, this.info.end);
    this.tiles.clear();
    this.notify("shift");
    this.notify("info");
  }

  /** Removes tracks that no longer exist from the selection and the area. */
  dropMissingTracks(): void {
    const isThere = (lane: number): boolean => this.tracks.laneTrack.has(lane);
    if (this.selected !== null && !isThere(this.selected.lane)) this.selected = null;
    const { area } = this;
    if (area === null || area.all) return;
    area.tracks = area.tracks.filter((track) => this.tracks.all.has(track));
    // An area without tracks would mean all tracks.
    if (area.tracks.length === 0) this.setArea(null);
  }

  /** Scrolls to a track and expands its parents. */
  reveal: (track: number) => void = () => {};

  /** Moves the view to a time on a lane, and selects the slice there. */
  jump(lane: number, time: number, place?: { begin: number; end: number }): void {
    const track = this.tracks.laneTrack.get(lane);
    if (track !== undefined) this.reveal(track);
    if (place !== undefined) this.view.fit(place.begin, Math.max(place.end, place.begin + 1));
    else this.view.show(time, time);
    void this.select(lane, time, place ?? {});
  }

  /** Loads the saved notes and merges them with those of this page. */
  async loadNotes(): Promise<void> {
    const { version, notes, remark } = await api.notes();
    this.notes = mergeNotes(this.savedNotes.keys, this.notes, notes);
    this.savedNotes = { version, keys: keysOf(notes) };
    if (typeof remark === "string") this.showMessage(remark);
    this.notify("notes");
  }

  /** Saves notes, one version after the other. */
  async saveNotes(): Promise<void> {
    this.notes.sort((a, b) => a.time - b.time);
    this.notify("notes");
    this.unsaved = true;
    if (this.saving) return;
    this.saving = true;
    try {
      while (this.unsaved) {
        this.unsaved = false;
        await this.writeNotes();
      }
    } catch (failure) {
      this.showMessage(`notes were not saved: ${reason(failure)}`);
    } finally {
      this.saving = false;
    }
  }

  /** Replaces the saved notes. If another page has changed them, merges both and tries again. */
  private async writeNotes(): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      if (this.savedNotes.version === null || attempt > 0) await this.loadNotes();
      const [version, keys] = [this.savedNotes.version ?? "", keysOf(this.notes)];
      try {
        const written = await api.saveNotes({ version, notes: this.notes });
        this.savedNotes = { version: written.version, keys };
        if (typeof written.remark === "string") this.showMessage(written.remark);
        return;
      } catch (failure) {
        const isOld = failure instanceof ServerError && failure.status === 409;
        if (!isOld || attempt >= MAX_SAVE_ATTEMPTS) throw failure;
      }
    }
  }
}
