// A link that restores the view: what the screen shows, in the address after `#`.

import type { App, Tab } from "./app";
import { CLOCKS, type Clock } from "./time";

export interface LinkState {
  begin?: number;
  end?: number;
  lane?: number;
  at?: number;
  /** Of all tracks, or of some. */
  area?: { begin: number; end: number; tracks?: number[] };
  pinned?: number[];
  open?: number[];
  scroll?: number;
  clock?: Clock;
  tab?: Tab;
}

const TABS: readonly string[] = ["detail", "selection", "events", "flame", "notes"];
/** Longer lists would make addresses that nobody can paste. */
const MOST_OPEN = 200;

/** Writes a state as the part of an address after `#`. */
export function write(state: LinkState): string {
  const parts: string[] = [];
  const put = (name: string, value: string | number | undefined): void => {
    if (value !== undefined && value !== "") parts.push(`${name}=${value}`);
  };
  if (state.begin !== undefined && state.end !== undefined) put("v", `${Math.round(state.begin)},${Math.round(state.end)}`);
  if (state.lane !== undefined && state.at !== undefined) put("s", `${state.lane},${Math.round(state.at)}`);
  if (state.area !== undefined) put("a", [Math.round(state.area.begin), Math.round(state.area.end), ...(state.area.tracks ?? [])].join(","));
  if (state.pinned !== undefined && state.pinned.length > 0) put("p", state.pinned.join(","));
  if (state.open !== undefined && state.open.length <= MOST_OPEN) put("o", state.open.join(","));
  if (state.scroll !== undefined && state.scroll > 0) put("y", Math.round(state.scroll));
  if (state.clock !== undefined && state.clock !== "relative") put("c", state.clock);
  if (state.tab !== undefined && state.tab !== "detail") put("t", state.tab);
  return parts.join("&");
}

function numbers(text: string | null): number[] {
  if (text === null || text === "") return [];
  return text.split(",").map(Number).filter((value) => Number.isSafeInteger(value));
}

/** Reads such a part; what can't be understood is left out. */
export function read(text: string): LinkState {
  const given = new URLSearchParams(text.replace(/^#/, ""));
  const state: LinkState = {};
  const [begin, end] = numbers(given.get("v"));
  if (begin !== undefined && end !== undefined && end > begin) Object.assign(state, { begin, end });
  const [lane, at] = numbers(given.get("s"));
  if (lane !== undefined && at !== undefined) Object.assign(state, { lane, at });
  const [from, to, ...tracks] = numbers(given.get("a"));
  if (from !== undefined && to !== undefined && to > from) state.area = { begin: from, end: to, ...(tracks.length > 0 ? { tracks } : {}) };
  if (given.has("p")) state.pinned = numbers(given.get("p"));
  if (given.has("o")) state.open = numbers(given.get("o"));
  const [scroll] = numbers(given.get("y"));
  if (scroll !== undefined) state.scroll = scroll;
  const clock = CLOCKS.find((one) => one === given.get("c"));
  if (clock !== undefined) state.clock = clock;
  const tab = given.get("t") ?? "";
  if (TABS.includes(tab)) state.tab = tab as Tab;
  return state;
}

/** What the page shows now. */
export function current(app: App): LinkState {
  const { begin, end } = app.view.target;
  const state: LinkState = { begin, end, scroll: app.scroll, clock: app.clock, tab: app.tab };
  if (app.selected !== null) Object.assign(state, { lane: app.selected.lane, at: app.selected.begin });
  if (app.area !== null) {
    const { begin: from, end: to, all, tracks } = app.area;
    state.area = all ? { begin: from, end: to } : { begin: from, end: to, tracks };
  }
  if (app.tracks.pinned.length > 0) state.pinned = app.tracks.pinned;
  state.open = [...app.tracks.open];
  return state;
}

/** Makes the page show a state. */
export function restore(app: App, state: LinkState): void {
  if (state.open !== undefined) {
    app.tracks.open.clear();
    for (const id of state.open) app.tracks.open.add(id);
  }
  if (state.pinned !== undefined) app.tracks.pinned = state.pinned.filter((id) => app.tracks.all.has(id));
  app.tracks.layout();
  if (state.scroll !== undefined) app.scroll = state.scroll;
  if (state.clock !== undefined) app.setClock(state.clock);
  if (state.begin !== undefined && state.end !== undefined) app.view.set({ begin: state.begin, end: state.end });
  if (state.area !== undefined) {
    const tracks = state.area.tracks?.filter((id) => app.tracks.all.has(id)) ?? [];
    // Of tracks that aren't there, there is no area.
    const all = state.area.tracks === undefined;
    if (all || tracks.length > 0) app.setArea({ ...state.area, all, tracks });
  }
  if (state.lane !== undefined && state.at !== undefined && app.tracks.laneTrack.has(state.lane)) {
    void app.select(state.lane, state.at);
  }
  if (state.tab !== undefined) app.setTab(state.tab);
}
