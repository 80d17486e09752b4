// Tree of tracks: which are expanded and pinned, and the position of each row and lane.

import { isolate } from "../dom";
import type { LaneKind, RecordedProcess, TrackKind, LaneInfo, TrackInfo } from "./wire";

export interface Track {
  id: number;
  /** Parent in the list of tracks. */
  parent: number;
  /** Parent in the server's tree, which knows no parents of processes. */
  serverParent: number;
  kind: TrackKind;
  name: string;
  /** Name and number, for the search. */
  title: string;
  lanes: LaneInfo[];
  /** Threads come first, then child processes. */
  children: number[];
  /** Number of child processes among the children. */
  processes: number;
  depth: number;
  cpu?: number;
  pid?: number;
  tid?: number;
  unit: string;
  busy: number;
  trace?: number;
  /** The machine, if there are several. */
  host: string;
}

export interface LaneSlot {
  lane: LaneInfo;
  /** Distance from the row's upper edge, in pixels. */
  y: number;
  height: number;
  /** Whether it is a thin line in the row of a collapsed process. */
  small: boolean;
}

export interface Row {
  track: Track;
  y: number;
  height: number;
  slots: LaneSlot[];
  indent: number;
  folds: boolean;
  open: boolean;
}

const HEIGHTS: Record<LaneKind, number> = {
  interrupt: 5,
  softirq: 5,
  cpu: 19,
  thread: 17,
  syscall: 13,
  span: 17,
  marks: 12,
  counter: 36,
  density: 30,
};

const HEADER = 24;
const PADDING = 3;
/** Threads that a collapsed process shows. */
const MAX_SMALL_LANES = 6;
/** Rows that are expanded at first. */
const MAX_INITIAL_ROWS = 60;
/** Deepest tree that is followed, since a trace may claim one without end. */
const MAX_DEPTH = 16;
/** Deepest nesting of processes. Deeper ones continue at this level to keep names readable. */
const MAX_NESTING = 6;

/** Describes how a recorded process was started and how it ended. */
export function originOf(process: RecordedProcess): string {
  const { command, parent, end } = process;
  const parts = [command, parent !== null ? `child of ${parent}` : "", end];
  return parts.filter((part) => part !== "").join("\n");
}

function titleOf(track: TrackInfo): string {
  if (track.tid !== undefined) return `${isolate(track.name)} ${track.tid}`;
  if (track.pid !== undefined) return `${isolate(track.name)} ${track.pid}`;
  return track.name;
}

export class Tracks {
  readonly all = new Map<number, Track>();
  readonly roots: number[] = [];
  /** Track of each lane. */
  readonly laneTrack = new Map<number, number>();
  readonly laneKind = new Map<number, LaneInfo>();
  readonly open = new Set<number>();
  pinned: number[] = [];
  /** Rows of pinned tracks, and rows of the tree. Both begin at y = 0. */
  pinnedRows: Row[] = [];
  rows: Row[] = [];
  pinnedHeight = 0;
  height = 0;
  /** Increases whenever tracks are added. */
  stamp = 0;
  /** Names of the programs that the recordings started. */
  commands: readonly string[] = [];
  /** Recorded processes by process ID. */
  recorded: ReadonlyMap<number, RecordedProcess> = new Map();
  /** Largest number of a track. */
  newest = -1;

  /** Adds or updates tracks. Returns whether any is new. */
  add(wire: TrackInfo[]): boolean {
    let isNew = false;
    this.stamp += 1;
    for (const track of wire) {
      const known = this.all.get(track.id);
      isNew = known === undefined || isNew;
      this.put(track, known);
    }
    if (isNew) this.link();
    return isNew;
  }

  /** Replaces all tracks after the trace was indexed again. Those that still exist stay expanded
   * and pinned. */
  replace(wire: TrackInfo[]): void {
    const [open, known] = [new Set(this.open), new Set(this.all.keys())];
    for (const all of [this.all, this.laneTrack, this.laneKind, this.open]) all.clear();
    this.newest = -1;
    this.add(wire);
    for (const [id, track] of this.all) {
      if (open.has(id) || (!known.has(id) && track.kind === "group")) this.open.add(id);
    }
    this.pinned = this.pinned.filter((id) => this.all.has(id));
  }

  private put(wire: TrackInfo, known: Track | undefined): void {
    const { id, parent, kind, name, lanes = [], unit = "", busy = 0 } = wire;
    const listParent = known?.serverParent === parent ? known.parent : parent;
    const { children = [], processes = 0 } = known ?? {};
    const track: Track = { id, parent: listParent, serverParent: parent, kind, name, title: titleOf(wire), lanes, children, processes, depth: 0, unit, busy, host: wire.host ?? "" };
    if (wire.cpu !== undefined) track.cpu = wire.cpu;
    if (wire.pid !== undefined) track.pid = wire.pid;
    if (wire.tid !== undefined) track.tid = wire.tid;
    if (wire.trace !== undefined) track.trace = wire.trace;
    this.all.set(id, track);
    this.newest = Math.max(this.newest, id);
    for (const lane of lanes) {
      this.laneTrack.set(lane.id, id);
      this.laneKind.set(lane.id, lane);
    }
  }

  private link(): void {
    this.roots.length = 0;
    for (const track of this.all.values()) Object.assign(track, { children: [], processes: 0, parent: track.serverParent });
    for (const track of this.all.values()) {
      const parent = this.all.get(track.parent);
      if (parent === undefined) this.roots.push(track.id);
      else parent.children.push(track.id);
    }
    const descend = (ids: number[], depth: number): void => {
      if (depth > MAX_DEPTH) return;
      for (const id of ids) {
        const track = this.all.get(id);
        if (track === undefined) continue;
        track.depth = depth;
        descend(track.children, depth + 1);
      }
    };
    this.sort();
    descend(this.roots, 0);
  }

  /** Orders processes: recorded programs, other processes with spans, the rest by CPU time, and
   * the recorder. */
  private sort(): void {
    const ranks = new Map<number, number>();
    for (const track of this.all.values()) {
      if (track.kind === "process") ranks.set(track.id, this.work(track) + 1e15 * this.rank(track));
    }
    const byRank = (ids: number[]): void => {
      const processes = ids.filter((id) => ranks.has(id)).sort((a, b) => (ranks.get(b) ?? 0) - (ranks.get(a) ?? 0));
      // Processes keep the places of processes: before counters and channels.
      const roots = this.nest(processes).values();
      const sorted = ids.flatMap((id) => (ranks.has(id) ? (roots.next().value ?? []) : id));
      ids.length = 0;
      for (const id of sorted) ids.push(id);
    };
    byRank(this.roots);
    for (const track of this.all.values()) if (track.kind === "group") byRank(track.children);
  }

  /** Nests recorded processes below their recorded parents. Returns the others, in order. */
  private nest(processes: number[]): number[] {
    const byParent = new Map<number, number[]>();
    const pids = new Set(processes.flatMap((id) => this.recordedOf(id)?.pid ?? []));
    const roots = processes.filter((id) => {
      const process = this.recordedOf(id);
      const parent = process?.parent ?? null;
      if (parent === null || parent === process?.pid || !pids.has(parent)) return true;
      const siblings = byParent.get(parent);
      if (siblings === undefined) byParent.set(parent, [id]);
      else siblings.push(id);
      return false;
    });
    const placeBelow = (id: number, parent: Track | undefined, level: number): void => {
      const track = this.all.get(id);
      if (track === undefined) return;
      if (parent !== undefined) {
        parent.children.push(id);
        parent.processes += 1;
        track.parent = parent.id;
      }
      const pid = this.recordedOf(id)?.pid ?? -1;
      const children = byParent.get(pid) ?? [];
      byParent.delete(pid);
      const isDeepest = level >= MAX_NESTING;
      for (const child of children) placeBelow(child, isDeepest ? parent : track, isDeepest ? level : level + 1);
    };
    for (const id of roots) placeBelow(id, undefined, 0);
    // Reused process IDs can form a circle, which no root leads to.
    return [...roots, ...[...byParent.values()].flat()];
  }

  /** Description of a process by its recording, if there is one. */
  recordedOf(id: number): RecordedProcess | undefined {
    const track = this.all.get(id);
    if (track?.kind !== "process" || track.pid === undefined) return undefined;
    const process = this.recorded.get(track.pid);
    // Tracks have a host only if there are several.
    return track.host === "" || track.host === process?.host ? process : undefined;
  }

  private isRecorded(process: Track): boolean {
    if (this.recorded.size > 0) return this.recordedOf(process.id) !== undefined;
    // Older recordings have names only, which Linux cuts after 15 bytes.
    return this.commands.some((name) => name.slice(0, 15) === process.name);
  }

  /** Whether a process has spans, which come from its own events. */
  private hasSpans(process: Track): boolean {
    return process.children.some((id) => this.all.get(id)?.lanes.some((lane) => lane.kind === "span") ?? false);
  }

  private rank(process: Track): number {
    if (this.isRecorder(process)) return -1;
    if (this.isRecorded(process)) return this.hasSpans(process) ? 3 : 2;
    return this.hasSpans(process) ? 1 : 0;
  }

  /** Whether a process has the names of the recorder and of its thread. */
  private isRecorder(process: Track): boolean {
    return process.name === "tompion" && process.children.some((id) => this.all.get(id)?.name === "consumer");
  }

  /** CPU time of a track and everything below it. */
  private work(track: Track, depth = 0): number {
    if (depth > MAX_DEPTH) return 0;
    return track.children.reduce((sum, id) => {
      const child = this.all.get(id);
      return child === undefined ? sum : sum + this.work(child, depth + 1);
    }, track.busy);
  }

  /** Expands groups, processes with child processes, and the busiest others, up to
   * `MAX_INITIAL_ROWS`. */
  expandInitially(): void {
    const processes: Track[] = [];
    for (const track of this.all.values()) {
      if (track.children.length === 0) continue;
      if (track.kind === "process" && track.processes === 0) processes.push(track);
      else this.open.add(track.id);
    }
    const candidates = processes.map((track) => ({ track, busy: this.work(track) }));
    candidates.sort((a, b) => this.rank(b.track) - this.rank(a.track) || b.busy - a.busy);
    let room = MAX_INITIAL_ROWS;
    for (const { track, busy } of candidates) {
      if (track.children.length > room || this.isRecorder(track) || (busy === 0 && candidates.length > 8 && this.rank(track) < 2)) continue;
      room -= track.children.length;
      this.open.add(track.id);
    }
  }

  /** Computes the positions of all rows. */
  layout(): void {
    this.rows = [];
    this.pinnedRows = [];
    let y = 0;
    for (const id of this.pinned) {
      const track = this.all.get(id);
      if (track === undefined) continue;
      const row = this.place(track, y, 0, true);
      this.pinnedRows.push(row);
      y += row.height;
    }
    this.pinnedHeight = y;
    y = 0;
    const descend = (ids: number[], indent: number): void => {
      for (const id of ids) {
        const track = this.all.get(id);
        if (track === undefined) continue;
        const row = this.place(track, y, indent);
        this.rows.push(row);
        y += row.height;
        if (row.open && indent <= MAX_DEPTH) descend(track.children, indent + 1);
      }
    };
    descend(this.roots, 0);
    this.height = y;
  }

  private place(track: Track, y: number, indent: number, pinned = false): Row {
    const folds = track.children.length > 0;
    const open = folds && this.open.has(track.id);
    const slots = this.slotsOf(track);
    // A pinned process is summarized even if it is expanded in the tree.
    if (folds && (!open || pinned) && slots.length === 0) this.summarize(track, slots);
    const last = slots.at(-1);
    const height = Math.max(HEADER, last === undefined ? 0 : last.y + last.height + PADDING);
    if (slots.length === 1 && slots[0] !== undefined && !slots[0].small) centre(slots[0], height);
    return { track, y, height, slots, indent, folds, open };
  }

  private slotsOf(track: Track): LaneSlot[] {
    const slots: LaneSlot[] = [];
    let y = PADDING;
    for (const lane of track.lanes) {
      // Events of a CPU have no names; these are in the tracks of threads.
      const height = track.kind === "cpu" && lane.kind === "marks" ? 6 : (HEIGHTS[lane.kind] ?? 16);
      slots.push({ lane, y, height, small: false });
      y += height + 1;
    }
    return slots;
  }

  /** Adds the busiest threads of a collapsed process as thin lines. */
  private summarize(track: Track, slots: LaneSlot[]): void {
    const threads = track.children
      .map((id) => this.all.get(id))
      .filter((child): child is Track => child !== undefined && child.kind === "thread")
      .sort((a, b) => b.busy - a.busy)
      .slice(0, MAX_SMALL_LANES);
    const lanes = threads.flatMap((thread) => thread.lanes.filter((lane) => lane.kind === "thread").slice(0, 1));
    const height = Math.max(3, Math.floor((HEADER - 8) / Math.max(1, lanes.length)) - 1);
    lanes.forEach((lane, at) => slots.push({ lane, y: PADDING + at * (height + 1), height, small: true }));
  }

  /** Index of the row at a height: the first that ends below it. */
  static rowAt(rows: readonly Row[], y: number): number {
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const row = rows[middle];
      if (row !== undefined && row.y + row.height > y) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Expands all parents of a track. */
  reveal(id: number): void {
    for (let at = this.all.get(id), depth = 0; at !== undefined && depth < MAX_DEPTH; depth++) {
      at = this.all.get(at.parent);
      if (at !== undefined) this.open.add(at.id);
    }
  }

  /** Whether a track is in a set, or below one of its tracks in the server's tree. */
  isIn(id: number, among: ReadonlySet<number>): boolean {
    for (let [at, depth] = [this.all.get(id), 0]; at !== undefined && depth <= MAX_DEPTH; at = this.all.get(at.serverParent), depth++) {
      if (among.has(at.id)) return true;
    }
    return false;
  }

  /** Tracks that a marked set selects. A heading selects everything below it, unless some of that
   * is marked too. */
  selectedBy(ids: readonly number[]): number[] {
    const marked = [...new Set(ids)];
    const isMarkedBelow = (id: number): boolean => marked.some((other) => other !== id && this.isBelow(other, id));
    const selected = marked.filter((id) => !this.open.has(id) || !isMarkedBelow(id));
    return [...new Set(selected.flatMap((id) => this.withProcesses(id)))];
  }

  /** Whether a track is below another one in the list. */
  private isBelow(id: number, other: number): boolean {
    for (let [at, depth] = [this.all.get(id), 0]; at !== undefined && depth <= MAX_DEPTH; at = this.all.get(at.parent), depth++) {
      if (at.parent === other) return true;
    }
    return false;
  }

  /** A track with all processes below it, which the server does not find from their parent. */
  withProcesses(id: number): number[] {
    const track = this.all.get(id);
    const processes = track === undefined || track.processes === 0 ? [] : track.children.slice(-track.processes);
    return [id, ...processes.flatMap((child) => this.withProcesses(child))];
  }

  toggle(id: number): void {
    if (!this.open.delete(id)) this.open.add(id);
  }

  pin(id: number): void {
    this.pinned = this.pinned.includes(id) ? this.pinned.filter((other) => other !== id) : [...this.pinned, id];
  }
}

/** Centres a row's only lane. */
function centre(slot: LaneSlot, height: number): void {
  slot.y = Math.max(PADDING, Math.round((height - slot.height) / 2));
}
