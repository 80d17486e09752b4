// Fetches lanes and makes compact arrays of them, so that the page's own thread never parses an answer.

import { reason, refusal } from "./api";
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
  /** Up to when the trace is read. */
  known: number;
  error?: string;
  aborted?: boolean;
}

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

/** Numbers of a lane, in memory of its own: lanes are forgotten one by one. */
function lane(id: number, shape: LaneData["shape"], count: number, bytes: ArrayBuffer): LaneData {
  const boxes = shape === "boxes" ? count : 0;
  const times = new Float64Array(bytes, 0, shape === "boxes" ? 2 * count : 4 * count);
  const labels = new Int32Array(bytes, times.byteLength, boxes);
  const counts = new Uint32Array(bytes, times.byteLength + 4 * boxes, boxes);
  const styles = new Uint8Array(bytes, times.byteLength + 8 * boxes, boxes);
  return { id, times, styles, labels, counts, shape };
}

/** Makes arrays of an answer: of what the server has just written, which is taken as it is. */
export function parse(answer: ArrayBuffer): { lanes: LaneData[]; fresh: string[]; known: number } {
  const begin = 4 + new DataView(answer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(answer, 4, begin - 4))) as WireLanes;
  const fresh: string[] = [];
  const numbers = head.labels.map((label) => numberOf(label, fresh));
  let at = begin;
  const lanes = head.lanes.map(([id, shape, count]) => {
    const size = Math.ceil(((shape === "boxes" ? 25 : 32) * count) / 8) * 8;
    const made = lane(id, shape, count, answer.slice(at, at + size));
    at += size;
    const { labels } = made;
    for (let box = 0; box < labels.length; box++) labels[box] = numbers[labels[box] ?? -1] ?? -1;
    return made;
  });
  return { lanes, fresh, known: head.known };
}

async function fetchLanes(asked: LanesRequest): Promise<LanesAnswer> {
  const controller = new AbortController();
  const nothing = { request: asked.request, lanes: [], fresh: [], known: 0 };
  underway.set(asked.request, controller);
  try {
    const response = await fetch(asked.url, { signal: controller.signal });
    if (!response.ok) return { ...nothing, error: (await refusal(response)).message };
    return { request: asked.request, ...parse(await response.arrayBuffer()) };
  } catch (error) {
    const aborted = controller.signal.aborted;
    return { ...nothing, error: reason(error), aborted };
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
  const buffers = answer.lanes.map((lane) => lane.times.buffer);
  (self as unknown as DedicatedWorkerGlobalScope).postMessage(answer, buffers as Transferable[]);
}

// Tests import this module where there is no worker.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  self.addEventListener("message", (event: MessageEvent<LanesRequest | AbortRequest>) => {
    void serve(event.data);
  });
}
