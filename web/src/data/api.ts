// Requests to the viewer's server.

import type {
  ArrowList,
  ClockOffset,
  EventCounts,
  EventRows,
  ExportedTrace,
  ExportProgress,
  FlameGraph,
  NewNotes,
  NoteList,
  SavedNotes,
  SearchAnswer,
  SliceAnswer,
  Statistics,
  StepAnswer,
  TraceOverview,
  TrackList,
} from "./wire";

type Parameters = Record<string, string | number | undefined>;

/** Parameter of requests that refresh what is shown already: the server may delay them. */
export function refreshParameter(isRefresh: boolean): Parameters {
  return isRefresh ? { again: 1 } : {};
}

/** Address of a request. */
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

/** Error that the server answered with. */
export class ServerError extends Error {
  constructor(
    readonly status: number,
    line: string,
  ) {
    super(line);
  }
}

/** Error from an unsuccessful response. */
export async function serverError(response: Response): Promise<ServerError> {
  const text = await response.text();
  let line = text.trim();
  try {
    const parsed = JSON.parse(text) as { error?: string };
    if (typeof parsed.error === "string") line = parsed.error;
  } catch {
    // The text itself is the message.
  }
  return new ServerError(response.status, line === "" ? `the server answered ${response.status}` : line);
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  throw await serverError(response);
}

async function get<T>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<T> {
  return answer<T>(await fetch(address(path, parameters), signal === undefined ? {} : { signal }));
}

async function post<T>(path: string, body: object, parameters: Parameters = {}): Promise<T> {
  const response = await fetch(address(path, parameters), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer<T>(response);
}

/** Time range, of some tracks with everything below them; without `tracks`, of all. */
export interface TimeRange {
  from: number;
  to: number;
  tracks?: string;
}

export interface EventQuery extends TimeRange {
  row: number;
  count: number;
  filter?: string;
  e?: string;
}

export const api = {
  trace: () => get<TraceOverview>("trace"),
  tracks: (again = false) => get<TrackList>("tracks", refreshParameter(again)),
  at: (lane: number, time: number, near: number) => get<SliceAnswer>("at", { lane, time, near }),
  step: (lane: number, time: number, dir: 1 | -1) => get<StepAnswer>("step", { lane, time, dir }),
  arrows: (from: number, to: number, width: number, ids: string, again: boolean, signal: AbortSignal) =>
    get<ArrowList>("arrows", { from, to, width, ids, ...refreshParameter(again) }, signal),
  search: (q: string, from: number, dir: 1 | -1, signal: AbortSignal) =>
    get<SearchAnswer>("search", { q, from, dir }, signal),
  events: (query: EventQuery, signal?: AbortSignal) => get<EventRows>("events", { ...query }, signal),
  select: (range: TimeRange, most: number | undefined, signal?: AbortSignal) => get<Statistics>("select", { ...range, most }, signal),
  counts: (range: TimeRange, signal?: AbortSignal) => get<EventCounts>("counts", { ...range }, signal),
  flame: (range: TimeRange, signal?: AbortSignal) => get<FlameGraph>("flame", { ...range }, signal),
  notes: (again = false) => get<NoteList>("notes", refreshParameter(again)),
  saveNotes: (notes: NewNotes) => post<SavedNotes>("notes", notes),
  offset: (offset: ClockOffset) => post<ClockOffset>("offset", offset),
  exportCtf: (range: TimeRange, id: string) => post<ExportedTrace>("export", {}, { ...range, format: "ctf", id }),
  csvAddress: (range: TimeRange, id: string) => address("export", { ...range, format: "csv", id }),
  /** Progress of an export, and its size once it is complete. */
  exporting: (id: string) => get<ExportProgress>("exporting", { id }),
};

/** Message of an error, in one line. */
export function reason(error: unknown): string {
  if (error instanceof TypeError) return "the server has ended: start `tompion view` again";
  return error instanceof Error ? error.message : String(error);
}

/** Whether a request was cancelled by the page. */
export function wasAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
