// Table of keys: the page acts on it, and `?` shows it.

import { api } from "../data/api";
import { TABS, type App } from "../app";
import { byId, el, fill } from "../dom";
import { savePicture } from "../panels/export";
import type { Finder } from "./finder";
import type { Notes } from "../panels/notes";
import type { Panel } from "../panels/panel";
import type { RulerBar } from "../draw/ruler";
import type { Search } from "./search";
import type { Selection } from "../panels/statistics";
import type { Timeline } from "../draw/timeline";
import type { Row } from "../data/tracks";
import { Style } from "../data/wire";

export interface Parts {
  app: App;
  timeline: Timeline;
  ruler: RulerBar;
  search: Search;
  finder: Finder;
  notes: Notes;
  panel: Panel;
  selection: Selection;
  legend: () => void;
  theme: () => void;
}

interface Key {
  keys: string[];
  shown: string;
  help: string;
  group: string;
  action: (parts: Parts) => void;
}

/** Zoom factor per second of a held key, and panned screens per second. */
const ZOOM_PER_SECOND = 6;
const PAN_PER_SECOND = 1.1;

const NAVIGATION: readonly Key[] = [
  { keys: [], shown: "W  S", help: "zoom in, out at the pointer", group: "Navigate", action: () => {} },
  { keys: [], shown: "A  D", help: "pan to earlier, later", group: "Navigate", action: () => {} },
  { keys: ["f"], shown: "F", help: "fit the area, the selected slice, or the trace", group: "Navigate", action: fit },
  { keys: ["Home"], shown: "Home", help: "show the whole trace", group: "Navigate", action: ({ app }) => app.view.go(app.view.whole()) },
  { keys: ["Backspace", "ctrl+z"], shown: "Backspace  Ctrl-Z", help: "undo the last move", group: "Navigate", action: ({ app }) => void app.view.undo() },
  { keys: ["shift+Backspace", "ctrl+y", "ctrl+shift+z"], shown: "Shift-Backspace  Ctrl-Y", help: "redo the undone move", group: "Navigate", action: ({ app }) => void app.view.redo() },
  { keys: [], shown: "wheel", help: "zoom at the pointer; Shift: pan, Alt: scroll", group: "Navigate", action: () => {} },
  { keys: [], shown: "drag", help: "pan; double-click a slice to zoom to it", group: "Navigate", action: () => {} },
  { keys: ["PageUp"], shown: "PageUp  PageDown", help: "scroll up, down", group: "Navigate", action: ({ app, timeline }) => scroll(app, -0.8 * timeline.height) },
  { keys: ["PageDown"], shown: "", help: "", group: "Navigate", action: ({ app, timeline }) => scroll(app, 0.8 * timeline.height) },
];

const SELECTION: readonly Key[] = [
  { keys: ["."], shown: ".  ,", help: "next, previous slice on the track", group: "Select", action: (parts) => void step(parts, 1) },
  { keys: [","], shown: "", help: "", group: "Select", action: (parts) => void step(parts, -1) },
  { keys: ["ArrowDown"], shown: "↓  ↑", help: "lane or heading below, above", group: "Select", action: (parts) => neighbour(parts, 1) },
  { keys: ["ArrowUp"], shown: "", help: "", group: "Select", action: (parts) => neighbour(parts, -1) },
  { keys: ["ArrowRight"], shown: "→  ←", help: "the same; on a heading: expand, collapse", group: "Select", action: (parts) => sideways(parts, 1) },
  { keys: ["ArrowLeft"], shown: "", help: "", group: "Select", action: (parts) => sideways(parts, -1) },
  { keys: ["Enter"], shown: "Enter", help: "zoom to the selection; expand or collapse a heading", group: "Select", action: enter },
  { keys: [], shown: "Shift-drag", help: "measure an area; along the ruler: all tracks", group: "Select", action: () => {} },
  { keys: ["shift+ArrowRight"], shown: "Shift-→  Shift-←", help: "extend the area to the next, previous slice", group: "Select", action: (parts) => void extend(parts, 1) },
  { keys: ["shift+ArrowLeft"], shown: "", help: "", group: "Select", action: (parts) => void extend(parts, -1) },
  { keys: ["shift+ArrowDown"], shown: "Shift-↓  Shift-↑", help: "extend it to the track below, above", group: "Select", action: (parts) => widen(parts, 1) },
  { keys: ["shift+ArrowUp"], shown: "", help: "", group: "Select", action: (parts) => widen(parts, -1) },
  { keys: ["e"], shown: "E", help: "measure the visible area", group: "Select", action: ({ selection }) => selection.selectScreen() },
  { keys: ["g"], shown: "G", help: "go to the thread that preempted it or woke it", group: "Select", action: follow },
  { keys: ["Escape"], shown: "Esc", help: "clear the selection", group: "Select", action: clear },
];

const SEARCH: readonly Key[] = [
  { keys: ["/"], shown: "/", help: "search names and values, or by filter", group: "Find", action: ({ search }) => search.focus() },
  { keys: ["n"], shown: "N  Shift-N", help: "next, previous hit", group: "Find", action: ({ search }) => void search.go(1) },
  { keys: ["shift+N"], shown: "", help: "", group: "Find", action: ({ search }) => void search.go(-1) },
  { keys: ["t"], shown: "T", help: "find a track", group: "Find", action: ({ finder }) => finder.open() },
  { keys: ["p"], shown: "P", help: "pin the track to the top", group: "Find", action: pin },
  { keys: ["m"], shown: "M", help: "add a note", group: "Find", action: ({ notes }) => notes.add() },
];

const DISPLAY: readonly Key[] = [
  ...TABS.map((tab, at): Key => ({
    keys: [String(at + 1)], shown: at === 0 ? "1 … 5" : "", help: at === 0 ? "detail, selection, events, flame graph, notes" : "", group: "Show",
    action: ({ app }) => app.openTab(tab),
  })),
  { keys: ["b"], shown: "B", help: "show or hide the panel", group: "Show", action: ({ panel }) => panel.toggle() },
  { keys: ["ctrl+arrowup"], shown: "Ctrl-↑  Ctrl-↓", help: "make the panel taller, shorter", group: "Show", action: ({ panel }) => panel.grow(1) },
  { keys: ["ctrl+arrowdown"], shown: "", help: "", group: "Show", action: ({ panel }) => panel.grow(-1) },
  { keys: ["r"], shown: "R", help: "show or hide wakeup arrows", group: "Show", action: arrows },
  { keys: ["c"], shown: "C", help: "clock: trace time, wall clock, UTC", group: "Show", action: ({ ruler }) => ruler.nextClock() },
  { keys: ["l"], shown: "L", help: "legend", group: "Show", action: ({ legend }) => legend() },
  { keys: ["shift+T"], shown: "Shift-T", help: "light or dark theme", group: "Show", action: ({ theme }) => theme() },
  { keys: ["i"], shown: "I", help: "save a picture", group: "Show", action: ({ app }) => void savePicture(app) },
  { keys: ["?", "shift+?"], shown: "?", help: "this help", group: "Show", action: () => showHelp() },
];

const KEYS: readonly Key[] = [...NAVIGATION, ...SELECTION, ...SEARCH, ...DISPLAY];

function fit({ app }: Parts): void {
  const { area, selected, view } = app;
  const target = view.target;
  const near = (begin: number, end: number): boolean => {
    const air = Math.max((end - begin) * 0.15, 10);
    return Math.abs(target.begin - (begin - air)) < air && Math.abs(target.end - (end + air)) < air;
  };
  // A second F shows the whole trace.
  if (area !== null && !near(area.begin, area.end)) view.fit(area.begin, area.end);
  else if (area === null && selected !== null && selected.end > selected.begin && !near(selected.begin, selected.end)) {
    view.fit(selected.begin, selected.end);
  } else view.go(view.whole());
}

function scroll(app: App, by: number): void {
  app.scroll += by;
  app.draw();
}

async function step({ app, timeline }: Parts, dir: 1 | -1): Promise<void> {
  const lane = app.selected?.lane ?? firstLane(app, timeline);
  if (lane < 0) return;
  const from = app.selected ?? null;
  const time = from === null ? Math.round(app.view.begin + app.view.span / 2) : from.begin;
  try {
    const found = await api.step(lane, time, dir);
    if ("none" in found) app.showMessage(dir === 1 ? "nothing later on this track" : "nothing earlier on this track");
    else {
      app.view.show(found.begin, Math.min(found.end, found.begin + app.view.span));
      await app.select(lane, found.begin, { begin: found.begin, end: found.end });
    }
  } catch {
    app.showMessage("the server did not answer");
  }
}

function firstLane(app: App, timeline: Timeline): number {
  const row = timeline.placed.find(({ row: { track } }) => track.id === app.current) ?? timeline.placed.find(({ row: one }) => one.slots.length > 0);
  return (row?.row.slots.find((slot) => slot.lane.kind === "thread" || slot.lane.kind === "cpu") ?? row?.row.slots[0])?.lane.id ?? -1;
}

/** Target of arrow keys: a heading or a lane. */
interface Stop {
  track: number;
  /** −1 for a heading. */
  lane: number;
}

export function stopsOf(rows: readonly Row[]): Stop[] {
  return rows.flatMap(({ track, slots, folds }): Stop[] =>
    folds || slots.length === 0 ? [{ track: track.id, lane: -1 }] : slots.map(({ lane }) => ({ track: track.id, lane: lane.id })),
  );
}

/** Goes to the lane or heading above or below, at the same time. */
function neighbour({ app, timeline }: Parts, by: number): void {
  const stops = stopsOf(app.tracks.rows);
  const { selected } = app;
  const at = stops.findIndex((stop) => (selected === null ? stop.track === app.current : stop.lane === selected.lane));
  const first = firstLane(app, timeline);
  const next = at < 0 ? stops.find((stop) => stop.lane === first) : stops[at + by];
  if (next === undefined) return;
  const { begin, end } = app.view.target;
  // The time is kept while arrows pass over headings.
  const cursor = app.cursor !== null && app.cursor >= begin && app.cursor <= end ? app.cursor : (begin + end) / 2;
  const time = Math.round(selected === null ? cursor : Math.max(selected.begin, begin));
  app.reveal(next.track);
  if (next.lane >= 0) {
    void app.select(next.lane, time);
    return;
  }
  if (selected !== null) {
    app.cursor = time;
    app.unselect();
  }
  app.notify("tracks");
}

/** Goes to the next or previous slice; expands or collapses a heading. */
function sideways(parts: Parts, dir: 1 | -1): void {
  const { tracks, current, selected } = parts.app;
  const folds = (tracks.all.get(current)?.children.length ?? 0) > 0;
  if (selected !== null || !folds) void step(parts, dir);
  else if (tracks.open.has(current) !== (dir === 1)) enter(parts);
}

/** Starts an area with the selected slice, or extends the area to the next or previous one. */
async function extend({ app }: Parts, dir: 1 | -1): Promise<void> {
  const { selected } = app;
  if (selected === null) {
    app.showMessage("select a slice first (. or click): the area starts with it");
    return;
  }
  const track = app.tracks.laneTrack.get(selected.lane);
  const before = app.area;
  const area = before ?? { begin: selected.begin, end: Math.max(selected.end, selected.begin + 1), all: track === undefined, tracks: track === undefined ? [] : [track] };
  if (before === null) {
    app.setArea(area);
    return;
  }
  try {
    const found = await api.step(selected.lane, dir === 1 ? Math.max(area.end - 1, selected.begin) : area.begin, dir);
    if ("none" in found) app.showMessage(dir === 1 ? "nothing later on this track" : "nothing earlier on this track");
    else if (app.area === before) {
      const [begin, end] = [Math.min(area.begin, found.begin), Math.max(area.end, found.end, found.begin + 1)];
      app.view.show(dir === 1 ? Math.max(begin, end - app.view.span / 2) : begin, dir === 1 ? end : Math.min(end, begin + app.view.span / 2));
      app.setArea({ ...area, begin, end });
    }
  } catch {
    app.showMessage("the server did not answer");
  }
}

/** Adds the track below or above to the area. */
function widen({ app }: Parts, by: 1 | -1): void {
  const { area, tracks } = app;
  if (area === null || area.all) {
    app.showMessage("start an area first with Shift-→");
    return;
  }
  const { rows } = tracks;
  const places = rows.flatMap(({ track }, at) => (area.tracks.includes(track.id) ? [at] : []));
  const row = rows[by === 1 ? Math.max(...places) + 1 : Math.min(...places) - 1];
  if (row === undefined) return;
  const current = app.current;
  app.reveal(row.track.id);
  app.current = current;
  app.setArea({ ...area, tracks: [...new Set([...area.tracks, ...tracks.withProcesses(row.track.id)])] });
}

function enter({ app }: Parts): void {
  const { selected, tracks, current } = app;
  if (selected !== null && selected.end > selected.begin) app.view.fit(selected.begin, selected.end);
  else if ((tracks.all.get(current)?.children.length ?? 0) > 0) {
    tracks.toggle(current);
    tracks.layout();
    app.notify("tracks");
  }
}

function follow({ app }: Parts): void {
  const detail = app.selected?.detail ?? null;
  if (detail === null) return;
  const isPreempted = detail.style === Style.runnablePreempted;
  const other = (isPreempted ? detail.culprit : detail.waker) ?? detail.waker ?? detail.culprit;
  if (other !== undefined && other.lane !== null) app.jump(other.lane, other.time ?? detail.begin);
}

function clear({ app }: Parts): void {
  app.cursor = null;
  if (app.selected !== null) app.unselect();
  else if (app.area !== null) app.setArea(null);
  else app.draw();
}

function pin({ app }: Parts): void {
  if (!app.tracks.all.has(app.current)) return;
  app.tracks.pin(app.current);
  app.tracks.layout();
  app.notify("tracks");
}

function arrows({ app }: Parts): void {
  app.arrows = !app.arrows;
  app.showMessage(app.arrows ? "wakeup arrows shown" : "wakeup arrows hidden");
}

function showHelp(): void {
  const dialog = byId<HTMLDialogElement>("help");
  if (dialog.open) {
    dialog.close();
    return;
  }
  const groups = new Map<string, HTMLElement>();
  for (const key of KEYS) {
    if (key.shown === "") continue;
    let table = groups.get(key.group);
    if (table === undefined) groups.set(key.group, (table = el("table")));
    const keys = el("th");
    for (const word of key.shown.split(/ {2,}/)) keys.append(el("kbd", { text: word }));
    table.append(el("tr", {}, keys, el("td", { text: key.help })));
  }
  const sections = [...groups].map(([title, table]) => el("section", {}, el("h3", { text: title }), table));
  fill(byId("help-keys"), ...sections);
  dialog.showModal();
}

type Pressed = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey"> & { code?: string };

/** Meaning of keys by their position, for layouts without Latin letters. */
const BY_POSITION: Record<string, [string, string]> = { Period: [".", ">"], Comma: [",", "<"], Slash: ["/", "?"] };

/** Character of a key. Caps Lock is ignored, and letters of other scripts are those at the same
 * position on Latin keyboards. */
function letterOf({ key, code = "", shiftKey }: Pressed): string {
  if (key.length !== 1) return key;
  if (/^[a-z]$/i.test(key)) return shiftKey ? key.toUpperCase() : key.toLowerCase();
  // ASCII characters count as typed, whatever their position.
  if (key.charCodeAt(0) < 128) return key;
  const letter = /^Key([A-Z])$/.exec(code)?.[1];
  if (letter !== undefined) return shiftKey ? letter : letter.toLowerCase();
  return /^Digit(\d)$/.exec(code)?.[1] ?? BY_POSITION[code]?.[shiftKey ? 1 : 0] ?? key;
}

/** Name of a key in the table. */
export function nameOf(event: Pressed): string {
  const key = letterOf(event);
  const letter = key.length === 1 && !event.ctrlKey && !event.metaKey;
  const control = event.ctrlKey || event.metaKey ? "ctrl+" : "";
  const shift = event.shiftKey && (!letter || /[A-Z?]/.test(key)) ? "shift+" : "";
  return control + shift + (control !== "" ? key.toLowerCase() : key);
}

/** Name of a key by its position: French keyboards type digits with Shift only. */
function nameByPosition({ code, ctrlKey, metaKey, altKey }: KeyboardEvent): string {
  return ctrlKey || metaKey || altKey ? "" : (/^Digit(\d)$/.exec(code)?.[1] ?? "");
}

/** Moves the view while W, A, S or D are held. */
class HeldKeys {
  private readonly down = new Set<string>();
  private last = 0;

  constructor(private readonly app: App) {}

  press(key: string): void {
    if (this.down.has(key)) return;
    if (this.down.size === 0) {
      this.last = performance.now();
      requestAnimationFrame(() => this.frame());
    }
    this.down.add(key);
    // The shortest press moves visibly too.
    this.move(key, 0.06);
  }

  release(key: string): void {
    this.down.delete(key);
  }

  releaseAll(): void {
    this.down.clear();
  }

  private frame(): void {
    if (this.down.size === 0) return;
    const now = performance.now();
    const seconds = Math.min(0.1, (now - this.last) / 1000);
    this.last = now;
    for (const key of this.down) this.move(key, seconds);
    requestAnimationFrame(() => this.frame());
  }

  private move(key: string, seconds: number): void {
    const { view, hover } = this.app;
    const anchor = hover?.time ?? view.begin + view.span / 2;
    if (key === "w") view.zoom(ZOOM_PER_SECOND ** -seconds, anchor, false);
    else if (key === "s") view.zoom(ZOOM_PER_SECOND ** seconds, anchor, false);
    else if (key === "a") view.pan(-PAN_PER_SECOND * seconds, false);
    else if (key === "d") view.pan(PAN_PER_SECOND * seconds, false);
  }
}

/** Handles the keyboard. */
export function listen(parts: Parts): void {
  const held = new HeldKeys(parts.app);
  window.addEventListener("keydown", (event) => {
    const target = event.target;
    const typing = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;
    if (typing || event.altKey) {
      if (typing && event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") !== null && event.key !== "?") return;
    const letter = letterOf(event).toLowerCase();
    const moves = "wasd".includes(letter) && letter.length === 1;
    if (moves && !event.ctrlKey && !event.metaKey) {
      held.press(letter);
      event.preventDefault();
      return;
    }
    // A focused button handles Enter itself.
    if (event.key === "Enter" && target instanceof HTMLButtonElement) return;
    const name = nameOf(event);
    const key = KEYS.find(({ keys }) => keys.includes(name)) ?? KEYS.find(({ keys }) => keys.includes(nameByPosition(event)));
    if (key === undefined) return;
    event.preventDefault();
    key.action(parts);
  });
  window.addEventListener("keyup", (event) => held.release(letterOf(event).toLowerCase()));
  window.addEventListener("blur", () => held.releaseAll());
  byId("help-button").addEventListener("click", showHelp);
}
