// What the server and the page say to each other. All times are nanoseconds after the trace's
// `base`.

/** What a box shows; the numbers are the server's. */
export const Style = {
  unknown: 0,
  idle: 1,
  running: 2,
  runnable: 3,
  runnablePreempted: 4,
  sleeping: 5,
  uninterruptible: 6,
  stopped: 7,
  created: 8,
  syscall: 9,
  interrupt: 10,
  softirq: 11,
  span: 12,
  function: 13,
  mark: 14,
  lost: 15,
  overwritten: 16,
  job: 17,
  lateJob: 18,
  counter: 19,
  density: 20,
} as const;

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

/** What was late, from when to when. */
export interface Incident {
  begin: number;
  end: number;
  /** How long it may have taken, in nanoseconds. */
  limit: number;
  tid: number;
  name: string;
  /** The job that missed its deadline; nothing for a late wake-up. */
  job: string | null;
  /** What most of it was, as `tompion explain` says it. */
  verdict?: { percent: number; words: string } | null;
  /** Who had how much of it; the largest part comes first. */
  culprits?: { words: string; tid: number; percent: number; time: number }[];
}

/** Process as its recording describes it; absent parts are unknown. */
export interface RecordedProcess {
  pid: number;
  parent?: number | null;
  /** Its command line, as a shell would take it. */
  command?: string;
  /** How it ended, in words. */
  end?: string;
}

export interface TraceInfo {
  version: number;
  base: string;
  begin: number;
  end: number;
  progress: number;
  growing: boolean;
  /** Names of the programs that the recordings started. */
  commands?: string[];
  /** Processes that the recordings name. */
  processes?: RecordedProcess[];
  name: string;
  traces: TracePart[];
  events: number;
  losses: Losses;
  damages?: string[];
  disorders?: string[];
  timezone_offset_s?: number;
  /** What went wrong while the trace was read, in one line. */
  error?: string | null;
  /** Says so, when the trace is no longer where it was. */
  gone?: string | null;
  /** While the trace is read: how often something was read before its turn, and from when to when
   * all was. */
  glimpses?: number;
  seen?: [number, number][];
  /** The folder in which notes are kept, and what was found out. */
  kept?: string | null;
  /** How many lanes there are. */
  lanes?: number;
  /** Counts up when the trace has been read anew: then tracks and lanes are others. */
  generation?: number;
  /** The folder is an incident's, which a monitor has kept. */
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
  /** The machine, if there are several. */
  host?: string;
}

export interface WireTracks {
  tracks: WireTrack[];
  /** How often the trace had been read anew, and how much of it was read. */
  generation?: number;
  progress?: number;
}

/** The head of an answer of /api/lanes; behind it stand the lanes' numbers. */
export interface WireLanes {
  from: number;
  to: number;
  /** Up to when the trace is read. */
  known: number;
  /** Number, what it has, how many of that. */
  lanes: [number, "boxes" | "points" | "bins", number][];
  labels: string[];
}

export interface WireArrows {
  arrows: number[];
  more?: boolean;
}

/** A thread, as links to it need it. */
export interface ThreadLink {
  tid: number;
  name?: string;
  pid?: number | null;
  track?: number;
  lane?: number;
  time?: number;
  /** For how long it ran, in nanoseconds. */
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
  /** The thread that ran when it was woken, where the trace doesn't tell whether it or an interrupt woke. */
  during?: ThreadLink;
  culprit?: ThreadLink;
  /** The threads that its CPU ran while a thread waited, the longest first, and how many more there were. */
  ran?: ThreadLink[];
  ran_others?: number;
  /** Of a counter: what it is, and the least and the greatest that it ever is. */
  value?: number | null;
  range?: [number | null, number | null];
  /** Of a channel: how many events there are from begin to end, and how many are missing. */
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
  /** What is wrong with what was asked for. */
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
  /** Ask again for the rows behind these: so far only a part of the trace was looked through. */
  continue?: boolean;
  /** How much of it, from 0 to 1. */
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
  /** Those whose both ends were observed. */
  count: number;
  /** The others: they are in no percentile and no total. */
  unfinished?: number;
  /** How long these take at least. */
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
  /** Asleep, or waiting for a lock. */
  blocked: number;
  /** Waiting for what no signal ends, mostly a disk. */
  io: number;
  /** Stopped, or made and not begun. */
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

/** How many events of each class some tracks have, as far as they were counted. */
export interface EventCounts {
  events: [string, number][];
  /** There are more: they are counted on when this is asked again. */
  continue?: boolean;
  /** How much of the area was looked at. */
  scanned?: number;
}

export interface Statistics {
  duration: number;
  /** Of some tracks they are counted by themselves. */
  events: [string, number][] | null;
  threads: ThreadTimes[];
  cpus: { cpu: number; busy: number; idle: number; unknown: number; interrupts: number }[];
  spans: Durations[];
  syscalls: Durations[];
  interrupts: Durations[];
  waits?: Wait[];
  losses?: Losses;
  /** The area is large: boxes that are narrow in it were added up before. */
  partial?: boolean;
  /** How many there are of what the lists have the first ones of. */
  counts?: { threads: number; spans: number; syscalls: number; interrupts: number };
  /** Up to when all is known: the numbers are of what lies before. */
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
  /** The area is large: boxes that are narrow in it were added up before. */
  partial?: boolean;
  /** There are more stacks than nodes. */
  cut?: boolean;
  /** Up to when all is known. */
  known?: number;
}

export interface Note {
  time: number;
  end?: number;
  text: string;
  track?: number;
  /** What the track is, by which the server finds it again: its number may not be known yet. */
  of?: unknown;
}

export interface WireNotes {
  /** Whoever writes notes says which ones these were made of. */
  version: string;
  notes: Note[];
  /** What became of the notes that were kept, in one line. */
  remark?: string | null;
}
