// Requests of the page to the server that it came from.

import type {
  EventCounts,
  EventRows,
  FlameGraph,
  Hit,
  Interval,
  Note,
  Statistics,
  TraceInfo,
  WireArrows,
  WireNotes,
  WireTracks,
} from "./wire";

type Parameters = Record<string, string | number | undefined>;

/** The server lets wait for what is shown already, from an older answer. */
export function asked(again: boolean): Parameters {
  return again ? { again: 1 } : {};
}

/** The address of a request. */
export function address(path: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) query.set(name, typeof value === "number" ? whole(value) : value);
  }
  const text = query.toString();
  return text === "" ? `api/${path}` : `api/${path}?${text}`;
}

function whole(value: number): string {
  return Math.round(value).toString();
}

/** The server refused, or could not. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    line: string,
  ) {
    super(line);
  }
}

/** What a server says that refuses. */
export async function refusal(response: Response): Promise<Refused> {
  const text = await response.text();
  let line = text.trim();
  try {
    const parsed = JSON.parse(text) as { error?: string };
    if (typeof parsed.error === "string") line = parsed.error;
  } catch {
    // A line of text is as good.
  }
  return new Refused(response.status, line === "" ? `the server answered ${response.status}` : line);
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  throw await refusal(response);
}

async function get<T>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<T> {
  return answer<T>(await fetch(address(path, parameters), signal === undefined ? {} : { signal }));
}

async function post<T>(path: string, body: unknown, parameters: Parameters = {}): Promise<T> {
  const response = await fetch(address(path, parameters), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer<T>(response);
}

/** From when to when, of which tracks and all below them; none named are all. */
export interface Stretch {
  from: number;
  to: number;
  tracks?: string;
}

export interface EventQuery extends Stretch {
  row: number;
  count: number;
  filter?: string;
  e?: string;
}

export const api = {
  trace: () => get<TraceInfo>("trace"),
  tracks: (again = false) => get<WireTracks>("tracks", asked(again)),
  at: (lane: number, time: number, near: number) => get<Interval & { none?: boolean }>("at", { lane, time, near }),
  step: (lane: number, time: number, dir: 1 | -1) =>
    get<{ begin?: number; end?: number; none?: boolean }>("step", { lane, time, dir }),
  arrows: (from: number, to: number, width: number, ids: string, again: boolean, signal: AbortSignal) =>
    get<WireArrows>("arrows", { from, to, width, ids, ...asked(again) }, signal),
  search: (q: string, from: number, dir: 1 | -1, signal: AbortSignal) =>
    get<Hit>("search", { q, from, dir }, signal),
  events: (query: EventQuery, signal?: AbortSignal) => get<EventRows>("events", { ...query }, signal),
  select: (stretch: Stretch, most: number | undefined, signal?: AbortSignal) => get<Statistics>("select", { ...stretch, most }, signal),
  counts: (stretch: Stretch, signal?: AbortSignal) => get<EventCounts>("counts", { ...stretch }, signal),
  flame: (stretch: Stretch, signal?: AbortSignal) => get<FlameGraph>("flame", { ...stretch }, signal),
  notes: (again = false) => get<WireNotes>("notes", asked(again)),
  saveNotes: (version: string, notes: Note[]) => post<Omit<WireNotes, "notes">>("notes", { version, notes }),
  offset: (trace: number, offset: number) => post<unknown>("offset", { trace, offset_ns: offset }),
  exportCtf: (stretch: Stretch, id: string) =>
    post<{ path?: string; events?: number; bytes?: number }>("export", {}, { ...stretch, format: "ctf", id }),
  csvAddress: (stretch: Stretch, id: string) => address("export", { ...stretch, format: "csv", id }),
  /** How far an export is, and how large it is when it is there. */
  exporting: (id: string) => get<{ share: number; bytes?: number | null; failed?: boolean }>("exporting", { id }),
};

/** What went wrong, in one line. */
export function reason(error: unknown): string {
  if (error instanceof TypeError) return "the server has ended: start `tompion view` again";
  return error instanceof Error ? error.message : String(error);
}

/** Whether a request ended because the page no longer wanted it. */
export function wasAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
