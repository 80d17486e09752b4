// Fetches lanes and makes compact arrays of them, so that the page's own thread never parses an answer.

import type { WireLanes } from "./wire";

export interface LanesRequest {
  kind: "lanes";
  request: number;
  url: string;
}

export interface AbortRequest {
  kind: "abort";
  request: number;
}

/** What one lane has in one stretch of time. */
export interface LaneData {
  id: number;
  /** Begin and end by turns; or time and values of points and bins. */
  times: Float64Array;
  styles: Uint8Array;
  /** Numbers of labels, as this worker counts them; −1 for none. */
  labels: Int32Array;
  counts: Uint32Array;
  shape: "boxes" | "points" | "bins";
}

export interface LanesAnswer {
  request: number;
  lanes: LaneData[];
  /** Labels never seen before, in the order of their numbers. */
  fresh: string[];
  error?: string;
  aborted?: boolean;
}

/** A box on the wire: begin, end, style, label, count. */
const BOX = 5;

const known = new Map<string, number>();
const underway = new Map<number, AbortController>();

function numberOf(label: string, fresh: string[]): number {
  let number = known.get(label);
  if (number === undefined) {
    number = known.size;
    known.set(label, number);
    fresh.push(label);
  }
  return number;
}

function boxes(id: number, flat: number[], numbers: number[]): LaneData {
  const count = Math.floor(flat.length / BOX);
  const data: LaneData = {
    id,
    times: new Float64Array(2 * count),
    styles: new Uint8Array(count),
    labels: new Int32Array(count),
    counts: new Uint32Array(count),
    shape: "boxes",
  };
  for (let at = 0; at < count; at++) {
    const from = at * BOX;
    data.times[2 * at] = flat[from] ?? 0;
    data.times[2 * at + 1] = flat[from + 1] ?? 0;
    data.styles[at] = flat[from + 2] ?? 0;
    data.labels[at] = numbers[flat[from + 3] ?? -1] ?? -1;
    data.counts[at] = flat[from + 4] ?? 1;
  }
  return data;
}

function plain(id: number, flat: number[], shape: "points" | "bins"): LaneData {
  const nothing = 0;
  return {
    id,
    times: Float64Array.from(flat),
    styles: new Uint8Array(nothing),
    labels: new Int32Array(nothing),
    counts: new Uint32Array(nothing),
    shape,
  };
}

/** Makes arrays of an answer. */
export function parse(answer: WireLanes): { lanes: LaneData[]; fresh: string[] } {
  const fresh: string[] = [];
  const numbers = answer.labels.map((label) => numberOf(label, fresh));
  const lanes = answer.lanes.map((lane) => {
    if (lane.points !== undefined) return plain(lane.id, lane.points, "points");
    if (lane.bins !== undefined) return plain(lane.id, lane.bins, "bins");
    return boxes(lane.id, lane.boxes ?? [], numbers);
  });
  return { lanes, fresh };
}

async function fetchLanes(asked: LanesRequest): Promise<LanesAnswer> {
  const controller = new AbortController();
  underway.set(asked.request, controller);
  try {
    const response = await fetch(asked.url, { signal: controller.signal });
    if (!response.ok) return { request: asked.request, lanes: [], fresh: [], error: await response.text() };
    return { request: asked.request, ...parse((await response.json()) as WireLanes) };
  } catch (error) {
    const aborted = controller.signal.aborted;
    return { request: asked.request, lanes: [], fresh: [], error: String(error), aborted };
  } finally {
    underway.delete(asked.request);
  }
}

async function serve(message: LanesRequest | AbortRequest): Promise<void> {
  if (message.kind === "abort") {
    underway.get(message.request)?.abort();
    return;
  }
  const answer = await fetchLanes(message);
  const buffers = answer.lanes.flatMap((lane) => [
    lane.times.buffer,
    lane.styles.buffer,
    lane.labels.buffer,
    lane.counts.buffer,
  ]);
  (self as unknown as DedicatedWorkerGlobalScope).postMessage(answer, buffers as Transferable[]);
}

// Tests import this module where there is no worker.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  self.addEventListener("message", (event: MessageEvent<LanesRequest | AbortRequest>) => {
    void serve(event.data);
  });
}
