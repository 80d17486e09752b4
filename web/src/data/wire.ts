// Types of the server's API. All times are nanoseconds after the trace's `base`.

export { Style } from "./slice_kinds";

export type TrackKind = "group" | "cpu" | "process" | "thread" | "counter" | "channel";
export type LaneKind =
  | "interrupt"
  | "softirq"
  | "cpu"
  | "thread"
  | "syscall"
  | "span"
  | "marks"
  | "counter"
  | "density";

export interface Losses {
  events: number;
  packets?: number;
  overwritten?: number;
}

/** Late interval of an incident. */
export interface Incident {
  begin: number;
  end: number;
  /** Permitted duration in nanoseconds. */
  limit: number;
  tid: number;
  name: string;
  /** Job that missed its deadline; null for a late wakeup. */
  job: string | null;
  /** Largest cause, in the words of `tompion explain`. */
  verdict?: { percent: number; words: string } | null;
  /** Causes with their shares, largest first. */
  culprits?: { words: string; tid: number; percent: number; time: number }[];
}

/** Process as its recording describes it; absent parts are unknown. */
export interface RecordedProcess {
  pid: number;
  parent?: number | null;
  /** Command line, quoted for a shell. */
  command?: string;
  /** Exit status, in words. */
  end?: string;
}

export interface TraceInfo {
  version: number;
  base: string;
  begin: number;
  end: number;
  progress: number;
  growing: boolean;
  /** Names of programs that the recordings started. */
  commands?: string[];
  /** Processes that the recordings describe. */
  processes?: RecordedProcess[];
  name: string;
  traces: TracePart[];
  events: number;
  losses: Losses;
  damages?: string[];
  disorders?: string[];
  timezone_offset_s?: number;
  /** Error while the trace was read, in one line. */
  error?: string | null;
  /** Message that the trace's files are gone. */
  gone?: string | null;
  /** While the trace is read: number of prefetches, and the ranges that they read completely. */
  glimpses?: number;
  seen?: [number, number][];
  /** Folder of the notes and the index; null if none is writable. */
  kept?: string | null;
  /** Number of lanes. */
  lanes?: number;
  /** Increases when the trace is indexed again; tracks and lanes may change then. */
  generation?: number;
  /** Incident of this folder, saved by a monitor. */
  incident?: Incident | null;
}

export interface TracePart {
  id: number;
  path: string;
  name: string;
  tracer?: string;
  host?: string;
  begin: number;
  end: number;
  offset: number;
  events: number;
}

export interface WireLane {
  id: number;
  kind: LaneKind;
  depth?: number;
  min?: number;
  max?: number;
}

export interface WireTrack {
  id: number;
  parent: number;
  kind: TrackKind;
  name: string;
  lanes?: WireLane[];
  cpu?: number;
  pid?: number;
  tid?: number;
  unit?: string;
  busy?: number;
  trace?: number;
  /** Host, if there are several. */
  host?: string;
}

export interface WireTracks {
  tracks: WireTrack[];
  /** Generation and progress of the index that the tracks are from. */
  generation?: number;
  progress?: number;
}

/** Head of an answer of /api/lanes. The arrays of the lanes follow. */
export interface WireLanes {
  from: number;
  to: number;
  /** Time up to which the trace is read. */
  known: number;
  /** Lane number, shape and element count. */
  lanes: [number, "boxes" | "points" | "bins", number][];
  labels: string[];
}

export interface WireArrows {
  arrows: number[];
  more?: boolean;
}

/** Reference to a thread. */
export interface ThreadLink {
  tid: number;
  name?: string;
  pid?: number | null;
  track?: number;
  lane?: number;
  time?: number;
  /** CPU time in nanoseconds. */
  ns?: number;
}

export interface Neighbour {
  label: string;
  begin: number;
  end: number;
  style: number;
}

export interface Interval {
  lane: number;
  track: number;
  style: number;
  label: string;
  begin: number;
  end: number;
  seen?: [boolean, boolean];
  fields?: [string, string][];
  thread?: ThreadLink;
  cpu?: number;
  before?: Neighbour | null;
  after?: Neighbour | null;
  why?: string;
  waker?: ThreadLink;
  /** Thread that ran at the wakeup, if the trace does not say whether it or an interrupt woke. */
  during?: ThreadLink;
  culprit?: ThreadLink;
  /** Threads that ran during the wait on the CPU where the thread ran next, longest first, and the
   * number of others. */
  ran?: ThreadLink[];
  ran_others?: number;
  /** Value of a counter, and its range in the whole trace. */
  value?: number | null;
  range?: [number | null, number | null];
  /** Event counts of a channel between begin and end. */
  counts?: Amounts;
}

export interface Amounts {
  events: number;
  lost: number;
  overwritten: number;
}

export interface Hit {
  time?: number;
  row?: number;
  name?: string;
  lane?: number;
  none?: boolean;
  continue?: number;
  /** Error in the search text. */
  bad?: string;
}

export interface EventRow {
  row: number;
  time: number;
  cpu?: number | null;
  tid?: number | null;
  name: string;
  text: string;
  lane?: number | null;
}

export interface EventRows {
  rows: EventRow[];
  /** Whether more rows follow: only a part of the trace was searched so far. */
  continue?: boolean;
  /** Searched share of the trace, from 0 to 1. */
  scanned?: number;
  total: number | null;
  bad?: string;
}

export interface Place {
  lane: number;
  begin: number;
  end: number;
}

export interface Durations {
  name: string;
  /** Number of slices with observed begin and end. */
  count: number;
  /** Number of others, which are in no percentile and no total. */
  unfinished?: number;
  /** Minimum total duration of the unfinished ones. */
  unfinished_total?: number;
  min: number;
  p50: number;
  p90: number;
  p99: number;
  max: number;
  total: number;
  longest?: Place | null;
  histogram?: [number, number, number, (Place | null)?][];
}

export interface ThreadTimes {
  track: number;
  name: string;
  tid: number;
  running: number;
  ready: number;
  preempted: number;
  /** Asleep, interruptible. */
  blocked: number;
  /** Uninterruptible sleep. */
  io: number;
  /** Stopped, or created and not yet started. */
  stopped: number;
  unknown: number;
}

export interface Wait extends Place {
  track: number;
  name: string;
  tid: number;
  style: number;
  why?: string;
}

/** Event counts of some tracks by class, as far as they were counted. */
export interface EventCounts {
  events: [string, number][];
  /** Whether another request continues the count. */
  continue?: boolean;
  /** Counted share of the area. */
  scanned?: number;
}

export interface Statistics {
  duration: number;
  /** Event counts by class; null for an area of some tracks, which `counts` returns. */
  events: [string, number][] | null;
  threads: ThreadTimes[];
  cpus: { cpu: number; busy: number; idle: number; unknown: number; interrupts: number }[];
  spans: Durations[];
  syscalls: Durations[];
  interrupts: Durations[];
  waits?: Wait[];
  losses?: Losses;
  /** Whether narrow slices were merged, since the area is large. */
  partial?: boolean;
  /** Total lengths of lists that are cut. */
  counts?: { threads: number; spans: number; syscalls: number; interrupts: number };
  /** Time up to which everything is known and counted. */
  known?: number;
}

export interface FlameNode {
  name: string;
  depth: number;
  total: number;
  self: number;
  count: number;
  parent: number;
}

export interface FlameGraph {
  nodes: FlameNode[];
  /** Whether narrow slices were merged, since the area is large. */
  partial?: boolean;
  /** Whether there are more stacks than nodes. */
  cut?: boolean;
  /** Time up to which everything is known. */
  known?: number;
}

export interface Note {
  time: number;
  end?: number;
  text: string;
  track?: number;
  /** Name of the track, by which the server finds it in another index. */
  of?: unknown;
}

export interface WireNotes {
  /** Version of the notes, which a later write must name. */
  version: string;
  notes: Note[];
  /** Remark on the saved notes, in one line. */
  remark?: string | null;
}
