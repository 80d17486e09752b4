// Link that restores the view: the state of the page in the address after `#`.
//
// Track numbers belong to one index of the trace, and links outlive it. So a link names tracks:
//
//   track: kind:number-or-name[@machine][;N], the N-th further one of this name
//          thread:55   counter:app%3Aqueue@left   thread:55;1
//   lane:  track/kind[.depth]
//          thread:55/span.1
//
// Links of earlier versions have plain numbers, which are valid with the same index only.

import { api, reason } from "./api";
import { TABS, type App, type Tab } from "../app";
import { CLOCKS, type Clock } from "./time";
import type { Track, Tracks } from "./tracks";
import type { IncidentSummary } from "./wire";

export interface LinkState {
  begin?: number;
  end?: number;
  /** Lane and time of the selection. */
  lane?: string;
  at?: number;
  /** Measured area; without tracks, of all tracks. */
  area?: { begin: number; end: number; tracks: string[] };
  pinned?: string[];
  open?: string[];
  scroll?: number;
  clock?: Clock;
  tab?: Tab;
  /** Filters of the event table, and the text of the search. */
  filter?: string;
  names?: string;
  searchText?: string;
  /** Offset of each trace in nanoseconds. */
  offsets?: number[];
}

/** Begin of an address for `tompion view --png`: `#png=1280x720,dark&v=0,5`. */
const PICTURE = /^#png(?:=(\d+)x(\d+)(,dark)?)?(&|$)/;

/** A picture that an address asks for: its width and height in pixels, and its theme. */
export interface Picture {
  width: number;
  height: number;
  theme: "light" | "dark";
}

/** The picture that an address asks for; null if it is not for one. */
export function picture(hash: string): Picture | null {
  const found = PICTURE.exec(hash);
  if (found === null) return null;
  const theme = found[3] === undefined ? "light" : "dark";
  return { width: Number(found[1] ?? 1600), height: Number(found[2] ?? 900), theme };
}

/** Longest list of tracks, so that the address can still be pasted. */
const MAX_TRACKS = 200;

/** Writes a state as the part of an address after `#`. */
export function write(state: LinkState): string {
  const parts: string[] = [];
  const put = (name: string, value: string | number | undefined): void => {
    if (value !== undefined && value !== "") parts.push(`${name}=${escape(String(value))}`);
  };
  const list = (name: string, tracks: string[] | undefined): void => {
    if (tracks !== undefined && tracks.length <= MAX_TRACKS) put(name, tracks.join(","));
  };
  if (state.begin !== undefined && state.end !== undefined) put("v", `${Math.round(state.begin)},${Math.round(state.end)}`);
  if (state.lane !== undefined && state.at !== undefined) put("s", `${state.lane},${Math.round(state.at)}`);
  if (state.area !== undefined) {
    put("a", `${Math.round(state.area.begin)},${Math.round(state.area.end)}`);
    list("at", state.area.tracks);
  }
  list("p", state.pinned);
  list("o", state.open);
  if (state.scroll !== undefined && state.scroll > 0) put("y", Math.round(state.scroll));
  if (state.clock !== undefined && state.clock !== "relative") put("c", state.clock);
  if (state.tab !== undefined && state.tab !== "detail") put("t", state.tab);
  put("f", state.filter);
  put("e", state.names);
  put("q", state.searchText);
  if (state.offsets?.some((offset) => offset !== 0)) put("x", state.offsets.join(","));
  return parts.join("&");
}

/** Percent-encodes a text, except characters that fragments may contain. */
function escape(text: string): string {
  return encodeURIComponent(text).replace(/%(2C|3A|3B|2F|40)/g, (code) => decodeURIComponent(code));
}

function words(text: string | null): string[] {
  return text === null || text === "" ? [] : text.split(",");
}

function numbers(text: string | null): number[] {
  return words(text).map(Number).filter((value) => Number.isSafeInteger(value));
}

/** View of an incident: its interval, with the late thread measured. */
export function ofIncident({ begin, end, tid }: IncidentSummary): LinkState {
  const span = Math.max(1, end - begin);
  return { begin: begin - span / 3, end: end + span / 3, area: { begin, end, tracks: [`thread:${tid}`] }, tab: "selection" };
}

/** Initial view: that of the link, or the incident if the link is empty. */
export function initialState(hash: string, incident: IncidentSummary | null): LinkState {
  const isBare = hash === "" || PICTURE.exec(hash)?.[0] === hash;
  return isBare && incident ? ofIncident(incident) : read(hash);
}

/** Parses a list of track names. Invalid ones are left out. */
function tracks(text: string | null): string[] {
  return words(text).filter((word) => /^(\d+|[a-z]+:[^,]*)$/.test(word)).slice(0, MAX_TRACKS);
}

/** Parses the part of an address after `#`. Invalid values are left out. */
export function read(text: string): LinkState {
  const given = new URLSearchParams(text.replace(/^#/, ""));
  const state: LinkState = {};
  const [begin, end] = numbers(given.get("v"));
  if (begin !== undefined && end !== undefined && end > begin) Object.assign(state, { begin, end });
  const [lane] = tracks(given.get("s"));
  const [at] = numbers(given.get("s")?.split(",").at(-1) ?? null);
  if (lane !== undefined && at !== undefined && words(given.get("s")).length === 2) Object.assign(state, { lane, at });
  const [from, to] = numbers(given.get("a"));
  if (from !== undefined && to !== undefined && to > from) state.area = { begin: from, end: to, tracks: tracks(given.get("at")) };
  if (given.has("p")) state.pinned = tracks(given.get("p"));
  if (given.has("o")) state.open = tracks(given.get("o"));
  const [scroll] = numbers(given.get("y"));
  if (scroll !== undefined) state.scroll = scroll;
  const clock = CLOCKS.find((one) => one === given.get("c"));
  if (clock !== undefined) state.clock = clock;
  const tab = TABS.find((one) => one === given.get("t"));
  if (tab !== undefined) state.tab = tab;
  for (const [name, of] of [["f", "filter"], ["e", "names"], ["q", "searchText"]] as const) {
    const value = given.get(name) ?? "";
    if (value !== "") state[of] = value.slice(0, 2000);
  }
  const offsets = numbers(given.get("x"));
  if (offsets.length > 0) state.offsets = offsets;
  return state;
}

/** Names of tracks in links, in both directions. */
export class TrackNames {
  private readonly byName = new Map<string, number>();
  private readonly names = new Map<number, string>();

  constructor(private readonly tracks: Tracks) {
    const seen = new Map<string, number>();
    // Several threads can have had one number. The earliest has the smallest track number.
    for (const id of [...tracks.all.keys()].sort((a, b) => a - b)) {
      const track = tracks.all.get(id);
      if (track === undefined) continue;
      const name = nameOf(track);
      const before = seen.get(name) ?? 0;
      seen.set(name, before + 1);
      const own = before === 0 ? name : `${name};${before}`;
      this.byName.set(own, id);
      this.names.set(id, own);
    }
  }

  name(id: number): string | null {
    return this.names.get(id) ?? null;
  }

  /** Name of a lane. */
  lane(id: number): string | null {
    const lane = this.tracks.laneKind.get(id);
    const track = this.names.get(this.tracks.laneTrack.get(id) ?? -1);
    if (lane === undefined || track === undefined) return null;
    return `${track}/${lane.kind}${(lane.depth ?? 0) > 0 ? `.${lane.depth}` : ""}`;
  }

  /** Track by its name or number. */
  track(name: string): number | null {
    if (/^\d+$/.test(name)) return this.tracks.all.has(Number(name)) ? Number(name) : null;
    return this.byName.get(name) ?? null;
  }

  laneOf(name: string): number | null {
    if (/^\d+$/.test(name)) return this.tracks.laneTrack.has(Number(name)) ? Number(name) : null;
    const [, track = "", kind = "", depth = "0"] = /^(.*)\/([a-z]+)(?:\.(\d+))?$/.exec(name) ?? [];
    const lanes = this.tracks.all.get(this.track(track) ?? -1)?.lanes ?? [];
    return lanes.find((lane) => lane.kind === kind && (lane.depth ?? 0) === Number(depth))?.id ?? null;
  }
}

function nameOf(track: Track): string {
  const number = { cpu: track.cpu, process: track.pid, thread: track.tid }[track.kind as string];
  const host = track.host === "" ? "" : `@${encodeURIComponent(track.host)}`;
  return `${track.kind}:${number ?? encodeURIComponent(track.name)}${host}`;
}

let known: { tracks: Tracks; stamp: number; names: TrackNames } | null = null;

/** Names of the current tracks, cached. */
function namesOf(tracks: Tracks): TrackNames {
  if (known === null || known.tracks !== tracks || known.stamp !== tracks.stamp) {
    known = { tracks, stamp: tracks.stamp, names: new TrackNames(tracks) };
  }
  return known.names;
}

/** Current state of the page, with the tracks of a link that are still pending. */
export function current(app: App): LinkState {
  const { begin, end } = app.view.target;
  const { pending } = app;
  const names = namesOf(app.tracks);
  const namesFor = (ids: Iterable<number>): string[] => [...ids].flatMap((id) => names.name(id) ?? []);
  const state: LinkState = { begin, end, scroll: app.scroll, clock: app.clock, tab: app.tab };
  if (app.selected !== null) {
    const lane = names.lane(app.selected.lane);
    if (lane !== null) Object.assign(state, { lane, at: app.selected.begin });
  } else if (pending.selected !== null) Object.assign(state, pending.selected);
  const area = app.area ?? pending.area;
  if (area !== null) state.area = { begin: area.begin, end: area.end, tracks: [...namesFor(app.area?.tracks ?? []), ...(pending.area?.tracks ?? [])] };
  const pinned = [...namesFor(app.tracks.pinned), ...pending.pinned];
  if (pinned.length > 0) state.pinned = pinned;
  state.open = [...namesFor(app.tracks.open), ...pending.open];
  if (app.table.filter !== "") state.filter = app.table.filter;
  if (app.table.names !== "") state.names = app.table.names;
  if (app.searchText !== "") state.searchText = app.searchText;
  const offsets = app.info.traces.map((part) => part.offset);
  if (offsets.some((offset) => offset !== 0)) state.offsets = offsets;
  return state;
}

/** Restores a state. Tracks that are not known yet stay pending. */
export function restore(app: App, state: LinkState): void {
  app.pending = {
    pinned: state.pinned ?? [],
    open: state.open ?? [],
    area: state.area !== undefined && state.area.tracks.length > 0 ? state.area : null,
    selected: state.lane !== undefined && state.at !== undefined ? { lane: state.lane, at: state.at } : null,
  };
  if (state.open !== undefined) app.tracks.open.clear();
  if (state.pinned !== undefined) app.tracks.pinned = [];
  // An area of unknown tracks is none yet, and must not become one of all tracks.
  if (state.area !== undefined) app.area = app.pending.area === null ? { begin: state.area.begin, end: state.area.end, all: true, tracks: [] } : null;
  resolvePending(app);
  app.tracks.layout();
  if (state.scroll !== undefined) app.scroll = state.scroll;
  if (state.clock !== undefined) app.setClock(state.clock);
  if (state.begin !== undefined && state.end !== undefined) app.view.set({ begin: state.begin, end: state.end });
  if (state.area !== undefined) app.setArea(app.area);
  app.table = { filter: state.filter ?? "", names: state.names ?? "" };
  app.searchText = state.searchText ?? "";
  app.notify("link");
  if (state.tab !== undefined) app.setTab(state.tab);
  selectPending(app);
  if (state.tab !== undefined) app.setTab(state.tab);
  const isShifted = state.offsets?.some((offset, at) => offset !== (app.info.traces[at]?.offset ?? offset)) ?? false;
  if (isShifted) void shift(app, state);
}

/** Applies a link's offsets first, because its times depend on them. */
async function shift(app: App, state: LinkState): Promise<void> {
  try {
    for (const [at, offset] of (state.offsets ?? []).entries()) {
      const part = app.info.traces[at];
      if (part !== undefined && part.offset !== offset) await api.offset({ trace: part.id, offset_ns: offset });
    }
    app.info = await api.trace();
    app.applyShift();
    const { offsets: _, ...rest } = state;
    restore(app, rest);
  } catch (failure) {
    app.showMessage(`can't shift traces as the link says: ${reason(failure)}`);
  }
}

/** Resolves pending tracks of a link after new tracks have arrived. */
export function resume(app: App): void {
  const { pending } = app;
  const waits = pending.pinned.length + pending.open.length > 0 || pending.area !== null || pending.selected !== null;
  if (!waits) return;
  if (resolvePending(app)) {
    app.tracks.layout();
    app.draw();
  }
  selectPending(app);
}

/** Expands, pins and measures the pending tracks that are known now. Returns whether there were
 * any. */
function resolvePending(app: App): boolean {
  const names = namesOf(app.tracks);
  let found = false;
  const take = (waiting: string[], give: (id: number) => void): string[] =>
    waiting.filter((name) => {
      const id = names.track(name);
      if (id === null) return true;
      found = true;
      give(id);
      return false;
    });
  const { tracks, pending, area } = app;
  const measured: number[] = [];
  const left = take(pending.area?.tracks ?? [], (id) => measured.push(id));
  app.pending = {
    pinned: take(pending.pinned, (id) => !tracks.pinned.includes(id) && tracks.pinned.push(id)),
    open: take(pending.open, (id) => tracks.open.add(id)),
    area: pending.area === null || left.length === 0 ? null : { ...pending.area, tracks: left },
    selected: pending.selected,
  };
  const place = area ?? pending.area;
  if (place !== null && measured.length > 0) {
    const all = [...new Set([...(area?.tracks ?? []), ...measured])];
    app.area = { begin: place.begin, end: place.end, all: false, tracks: all };
    app.notify("area");
  }
  return found;
}

/** Selects the pending slice once its lane is known. */
function selectPending(app: App): void {
  const { selected } = app.pending;
  const lane = selected === null ? null : namesOf(app.tracks).laneOf(selected.lane);
  if (selected === null || lane === null) return;
  app.pending.selected = null;
  void app.select(lane, selected.at);
}
