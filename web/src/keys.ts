// What keys do, in one table: the page answers by it, and `?` shows it.

import { api } from "./api";
import type { App, Tab } from "./app";
import { byId, el, fill } from "./dom";
import { savePicture } from "./export";
import type { Finder } from "./finder";
import type { Notes } from "./notes";
import type { Panel } from "./panel";
import type { RulerBar } from "./ruler";
import type { Search } from "./search";
import type { Selection } from "./statistics";
import type { Timeline } from "./timeline";
import { Style } from "./wire";

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
  says: string;
  group: string;
  does: (parts: Parts) => void;
}

/** A held key makes the span so many times as long in a second, or moves by so many spans. */
const ZOOM_A_SECOND = 6;
const PAN_A_SECOND = 1.1;

const TABS: readonly Tab[] = ["detail", "selection", "events", "flame", "notes"];

const MOVES: readonly Key[] = [
  { keys: [], shown: "W  S", says: "zoom in, out, at the pointer", group: "Move", does: () => {} },
  { keys: [], shown: "A  D", says: "earlier, later", group: "Move", does: () => {} },
  { keys: ["f"], shown: "F", says: "fit: the area, what is chosen, or the whole", group: "Move", does: fit },
  { keys: ["Home"], shown: "Home", says: "the whole trace", group: "Move", does: ({ app }) => app.view.go(app.view.whole()) },
  { keys: ["Backspace", "ctrl+z"], shown: "Backspace  Ctrl-Z", says: "take the last movement back", group: "Move", does: ({ app }) => void app.view.undo() },
  { keys: ["shift+Backspace", "ctrl+y", "ctrl+shift+z"], shown: "Shift-Backspace  Ctrl-Y", says: "make it anew", group: "Move", does: ({ app }) => void app.view.redo() },
  { keys: [], shown: "wheel", says: "zoom at the pointer; Shift: sideways, Alt: up and down", group: "Move", does: () => {} },
  { keys: [], shown: "drag", says: "move; a double click zooms to a box", group: "Move", does: () => {} },
  { keys: ["PageUp"], shown: "PageUp  PageDown", says: "up, down", group: "Move", does: ({ app, timeline }) => scroll(app, -0.8 * timeline.height) },
  { keys: ["PageDown"], shown: "", says: "", group: "Move", does: ({ app, timeline }) => scroll(app, 0.8 * timeline.height) },
];

const CHOICES: readonly Key[] = [
  { keys: ["."], shown: ".  ,", says: "the next, the previous box on the track", group: "Choose", does: (parts) => void step(parts, 1) },
  { keys: [","], shown: "", says: "", group: "Choose", does: (parts) => void step(parts, -1) },
  { keys: ["ArrowDown"], shown: "↓  ↑", says: "the lane below, above", group: "Choose", does: (parts) => neighbour(parts, 1) },
  { keys: ["ArrowUp"], shown: "", says: "", group: "Choose", does: (parts) => neighbour(parts, -1) },
  { keys: ["ArrowRight"], shown: "→  ←", says: "as . and ,", group: "Choose", does: (parts) => void step(parts, 1) },
  { keys: ["ArrowLeft"], shown: "", says: "", group: "Choose", does: (parts) => void step(parts, -1) },
  { keys: ["Enter"], shown: "Enter", says: "zoom to what is chosen; fold or unfold a process", group: "Choose", does: enter },
  { keys: [], shown: "Shift-drag", says: "measure an area; along the ruler: of all tracks", group: "Choose", does: () => {} },
  { keys: ["e"], shown: "E", says: "measure what is on the screen", group: "Choose", does: ({ selection }) => selection.selectScreen() },
  { keys: ["g"], shown: "G", says: "to who preempted it, or woke it", group: "Choose", does: follow },
  { keys: ["Escape"], shown: "Esc", says: "choose nothing", group: "Choose", does: clear },
];

const FINDS: readonly Key[] = [
  { keys: ["/"], shown: "/", says: "search names and values, or a filter", group: "Find", does: ({ search }) => search.focus() },
  { keys: ["n"], shown: "N  Shift-N", says: "the next, the previous hit", group: "Find", does: ({ search }) => void search.go(1) },
  { keys: ["shift+N"], shown: "", says: "", group: "Find", does: ({ search }) => void search.go(-1) },
  { keys: ["t"], shown: "T", says: "find a track", group: "Find", does: ({ finder }) => finder.open() },
  { keys: ["p"], shown: "P", says: "pin the track to the top", group: "Find", does: pin },
  { keys: ["m"], shown: "M", says: "add a note", group: "Find", does: ({ notes }) => notes.add() },
];

const SHOWS: readonly Key[] = [
  ...TABS.map((tab, at): Key => ({
    keys: [String(at + 1)], shown: at === 0 ? "1 … 5" : "", says: at === 0 ? "detail, selection, events, flame graph, notes" : "", group: "Show",
    does: ({ app }) => app.setTab(tab),
  })),
  { keys: ["b"], shown: "B", says: "fold the panel away", group: "Show", does: ({ panel }) => panel.toggle() },
  { keys: ["r"], shown: "R", says: "arrows of wake-ups, on and off", group: "Show", does: arrows },
  { keys: ["c"], shown: "C", says: "clock: from begin, wall clock, UTC", group: "Show", does: ({ ruler }) => ruler.next() },
  { keys: ["l"], shown: "L", says: "what the colours mean", group: "Show", does: ({ legend }) => legend() },
  { keys: ["shift+T"], shown: "Shift-T", says: "light or dark", group: "Show", does: ({ theme }) => theme() },
  { keys: ["i"], shown: "I", says: "save the picture", group: "Show", does: ({ app }) => void savePicture(app) },
  { keys: ["?", "shift+?"], shown: "?", says: "these keys", group: "Show", does: () => showHelp() },
];

const KEYS: readonly Key[] = [...MOVES, ...CHOICES, ...FINDS, ...SHOWS];

function fit({ app }: Parts): void {
  const { area, selected, view } = app;
  const target = view.target;
  const near = (begin: number, end: number): boolean => {
    const air = Math.max((end - begin) * 0.15, 10);
    return Math.abs(target.begin - (begin - air)) < air && Math.abs(target.end - (end + air)) < air;
  };
  // A second F shows the whole.
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
    if (found.begin === undefined) app.say(dir === 1 ? "nothing later on this track" : "nothing earlier on this track");
    else {
      app.view.show(found.begin, Math.min(found.end ?? found.begin, found.begin + app.view.span));
      await app.select(lane, found.begin, { begin: found.begin, end: found.end ?? found.begin });
    }
  } catch {
    app.say("the server did not answer");
  }
}

function firstLane(app: App, timeline: Timeline): number {
  const row = timeline.placed.find(({ row: { track } }) => track.id === app.current) ?? timeline.placed.find(({ row: one }) => one.slots.length > 0);
  return (row?.row.slots.find((slot) => slot.lane.kind === "thread" || slot.lane.kind === "cpu") ?? row?.row.slots[0])?.lane.id ?? -1;
}

/** The lane above or below; what is chosen there is what is at the same moment. */
function neighbour({ app, timeline }: Parts, by: number): void {
  const lanes = app.tracks.rows.flatMap((row) => row.slots.filter((slot) => slot.lane.kind !== "density").map((slot) => slot.lane.id));
  const at = app.selected === null ? -1 : lanes.indexOf(app.selected.lane);
  const lane = at < 0 ? firstLane(app, timeline) : lanes[at + by];
  if (lane === undefined || lane < 0) return;
  const track = app.tracks.laneTrack.get(lane);
  if (track !== undefined) app.reveal(track);
  const { begin, end } = app.view.target;
  const middle = app.selected === null ? (begin + end) / 2 : Math.max(app.selected.begin, begin);
  void app.select(lane, Math.round(middle));
}

function enter({ app }: Parts): void {
  const { selected, tracks, current } = app;
  if (selected !== null && selected.end > selected.begin) app.view.fit(selected.begin, selected.end);
  else if ((tracks.all.get(current)?.children.length ?? 0) > 0) {
    tracks.toggle(current);
    tracks.layout();
    app.tell("tracks");
  }
}

function follow({ app }: Parts): void {
  const detail = app.selected?.detail ?? null;
  if (detail === null) return;
  const ready = detail.style === Style.readyPreempted || detail.style === Style.readyWoken;
  const other = (ready ? detail.culprit : detail.waker) ?? detail.waker ?? detail.culprit;
  if (other?.lane !== undefined && other.lane >= 0) app.jump(other.lane, other.time ?? detail.begin);
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
  app.tell("tracks");
}

function arrows({ app }: Parts): void {
  app.arrows = !app.arrows;
  app.say(app.arrows ? "arrows of wake-ups are drawn" : "arrows of wake-ups are hidden");
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
    table.append(el("tr", {}, keys, el("td", { text: key.says })));
  }
  const sections = [...groups].map(([title, table]) => el("section", {}, el("h3", { text: title }), table));
  fill(byId("help-keys"), ...sections);
  dialog.showModal();
}

/** The name by which the table has a key. */
export function nameOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey">): string {
  const letter = event.key.length === 1 && !event.ctrlKey && !event.metaKey;
  const control = event.ctrlKey || event.metaKey ? "ctrl+" : "";
  const shift = event.shiftKey && (!letter || /[A-Z?]/.test(event.key)) ? "shift+" : "";
  return control + shift + (control !== "" ? event.key.toLowerCase() : event.key);
}

/** Moves while W, A, S or D are held. */
class Held {
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
    // Even the shortest touch moves visibly.
    this.move(key, 0.06);
  }

  release(key: string): void {
    this.down.delete(key);
  }

  all(): void {
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
    if (key === "w") view.zoom(ZOOM_A_SECOND ** -seconds, anchor, false);
    else if (key === "s") view.zoom(ZOOM_A_SECOND ** seconds, anchor, false);
    else if (key === "a") view.pan(-PAN_A_SECOND * seconds, false);
    else if (key === "d") view.pan(PAN_A_SECOND * seconds, false);
  }
}

/** Listens to the keyboard. */
export function listen(parts: Parts): void {
  const held = new Held(parts.app);
  window.addEventListener("keydown", (event) => {
    const target = event.target;
    const typing = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;
    if (typing || event.altKey) {
      if (typing && event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") !== null && event.key !== "?") return;
    const moves = "wasd".includes(event.key.toLowerCase()) && event.key.length === 1;
    if (moves && !event.ctrlKey && !event.metaKey) {
      held.press(event.key.toLowerCase());
      event.preventDefault();
      return;
    }
    // A button that has the focus answers to Enter itself.
    if (event.key === "Enter" && target instanceof HTMLButtonElement) return;
    const name = nameOf(event);
    const key = KEYS.find((candidate) => candidate.keys.includes(name));
    if (key === undefined) return;
    event.preventDefault();
    key.does(parts);
  });
  window.addEventListener("keyup", (event) => held.release(event.key.toLowerCase()));
  window.addEventListener("blur", () => held.all());
  byId("help-button").addEventListener("click", showHelp);
}
