// Fetches lanes and makes compact arrays of them, so that the page's own thread never parses an
// answer.

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
  /** Numbers of labels; −1 for none. */
  labels: Int32Array;
  counts: Uint32Array;
  shape: "boxes" | "points" | "bins";
}

export interface LanesAnswer {
  request: number;
  lanes: LaneData[];
  /** The labels whose numbers boxes have. */
  labels: string[];
  /** Up to when the trace is read. */
  known: number;
  error?: string;
  aborted?: boolean;
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
export function parse(answer: ArrayBuffer): Pick<LanesAnswer, "lanes" | "labels" | "known"> {
  const begin = 4 + new DataView(answer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(answer, 4, begin - 4))) as WireLanes;
  let at = begin;
  const lanes = head.lanes.map(([id, shape, count]) => {
    const size = Math.ceil(((shape === "boxes" ? 25 : 32) * count) / 8) * 8;
    const made = lane(id, shape, count, answer.slice(at, at + size));
    at += size;
    return made;
  });
  return { lanes, labels: head.labels, known: head.known };
}

/** Fetches what it is asked for. */
export class Fetcher {
  private readonly underway = new Map<number, AbortController>();

  constructor(private readonly give: (answer: LanesAnswer) => void) {}

  /** Whether something is being fetched. */
  has(request: number): boolean {
    return this.underway.has(request);
  }

  async serve(message: LanesRequest | AbortRequest): Promise<void> {
    if (message.kind === "abort") this.underway.get(message.request)?.abort();
    else this.give(await this.fetch(message));
  }

  private async fetch({ request, url }: LanesRequest): Promise<LanesAnswer> {
    const controller = new AbortController();
    const nothing = { request, lanes: [], labels: [], known: 0 };
    this.underway.set(request, controller);
    try {
      const response = await fetch(url, { signal: controller.signal });
      if (!response.ok) return { ...nothing, error: (await refusal(response)).message };
      return { request, ...parse(await response.arrayBuffer()) };
    } catch (error) {
      const aborted = controller.signal.aborted;
      return { ...nothing, error: reason(error), aborted };
    } finally {
      this.underway.delete(request);
    }
  }
}

// The page imports this module as well, where there is no worker.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const worker = self as unknown as DedicatedWorkerGlobalScope;
  const fetcher = new Fetcher((answer) => {
    worker.postMessage(answer, answer.lanes.map(({ times }) => times.buffer));
  });
  worker.addEventListener("message", ({ data }: MessageEvent<LanesRequest | AbortRequest>) => void fetcher.serve(data));
  worker.postMessage("begun");
}
