// Worker that fetches lanes and converts them to typed arrays, so that the page's thread never
// parses an answer.

import { reason, serverError } from "./api";
import type { LanesHead } from "./wire";

export interface LanesRequest {
  kind: "lanes";
  request: number;
  url: string;
}

export interface AbortRequest {
  kind: "abort";
  request: number;
}

/** Contents of a lane in one time range. */
export interface LaneData {
  id: number;
  /** Begin and end of each slice; or time and values of points and bins. */
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
  /** Labels by the numbers that slices have. */
  labels: string[];
  /** Up to when the trace is read. */
  known: number;
  error?: string;
  aborted?: boolean;
}

/** Typed arrays of a lane over a buffer of its own, since lanes are evicted one by one. */
function laneData(id: number, shape: LaneData["shape"], count: number, bytes: ArrayBuffer): LaneData {
  const slices = shape === "boxes" ? count : 0;
  const times = new Float64Array(bytes, 0, shape === "boxes" ? 2 * count : 4 * count);
  const labels = new Int32Array(bytes, times.byteLength, slices);
  const counts = new Uint32Array(bytes, times.byteLength + 4 * slices, slices);
  const styles = new Uint8Array(bytes, times.byteLength + 8 * slices, slices);
  return { id, times, styles, labels, counts, shape };
}

/** Parses an answer. The server's arrays are trusted and used as they are. */
export function parse(answer: ArrayBuffer): Pick<LanesAnswer, "lanes" | "labels" | "known"> {
  const begin = 4 + new DataView(answer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(answer, 4, begin - 4))) as LanesHead;
  let at = begin;
  const lanes = head.lanes.map(([id, shape, count]) => {
    const size = Math.ceil(((shape === "boxes" ? 25 : 32) * count) / 8) * 8;
    const made = laneData(id, shape, count, answer.slice(at, at + size));
    at += size;
    return made;
  });
  return { lanes, labels: head.labels, known: head.known };
}

/** Serves requests for lanes, and cancels them. */
export class Fetcher {
  private readonly requests = new Map<number, AbortController>();

  constructor(private readonly deliver: (answer: LanesAnswer) => void) {}

  /** Whether a request is in progress. */
  has(request: number): boolean {
    return this.requests.has(request);
  }

  async serve(message: LanesRequest | AbortRequest): Promise<void> {
    if (message.kind === "abort") this.requests.get(message.request)?.abort();
    else this.deliver(await this.fetch(message));
  }

  private async fetch({ request, url }: LanesRequest): Promise<LanesAnswer> {
    const controller = new AbortController();
    const empty = { request, lanes: [], labels: [], known: 0 };
    this.requests.set(request, controller);
    try {
      const response = await fetch(url, { signal: controller.signal });
      if (!response.ok) return { ...empty, error: (await serverError(response)).message };
      return { request, ...parse(await response.arrayBuffer()) };
    } catch (error) {
      const aborted = controller.signal.aborted;
      return { ...empty, error: reason(error), aborted };
    } finally {
      this.requests.delete(request);
    }
  }
}

// The page imports this module too, where there is no worker scope.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const worker = self as unknown as DedicatedWorkerGlobalScope;
  const fetcher = new Fetcher((answer) => {
    worker.postMessage(answer, answer.lanes.map(({ times }) => times.buffer));
  });
  worker.addEventListener("message", ({ data }: MessageEvent<LanesRequest | AbortRequest>) => void fetcher.serve(data));
  worker.postMessage("begun");
}
