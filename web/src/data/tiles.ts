// Cache of lane contents. Time is divided into tiles: a tile of level L has 1024 pixels of 2^L
// nanoseconds. Visible tiles are requested from the server. Until they arrive, tiles of other
// levels are drawn.

import { address, refreshParameter } from "./api";
import type { Channel } from "./channel";
import { Labels } from "./labels";
import type { LaneData, LanesAnswer } from "./worker";

export const TILE_PIXELS = 1024;
/** Coarsest level: 2^43 ns per pixel are 2.4 hours. */
export const MAX_LEVEL = 43;
const MAX_LANES_PER_REQUEST = 48;
const MAX_REQUESTS = 4;
/** Interval at which failed requests are repeated, in milliseconds. */
export const RETRY_INTERVAL = 1000;
/** Concurrent requests that refresh what is drawn already. */
const MAX_REFRESHES = 2;
const MAX_BYTES = 48 * 1024 * 1024;

export interface Tile extends LaneData {
  /** Time range of the tile. */
  from: number;
  to: number;
  /** Last frame that drew it. */
  used: number;
  /** State of the index that it is from. Older tiles are requested again, and drawn meanwhile. */
  generation: number;
  /** Whether all of it had been read when it was requested. */
  whole: boolean;
}

interface Job {
  index: number;
  lanes: number[];
}

/** Tile whose request failed. */
interface Failed {
  lane: number;
  level: number;
  index: number;
  /** Whether it waits for the next attempt. */
  waits: boolean;
}

interface PendingRequest extends Job {
  level: number;
  /** Whether it refreshes tiles that are drawn already. */
  again: boolean;
  /** State of the index at the request. */
  generation: number;
}

/** Level for a scale in nanoseconds per pixel: the finest whose pixels are not coarser than the
 * screen's. */
export function levelFor(scale: number): number {
  return Math.min(MAX_LEVEL, Math.max(0, Math.floor(Math.log2(Math.max(1, scale)))));
}

/** Length of a level's tiles, in nanoseconds. */
export function tileSpan(level: number): number {
  return TILE_PIXELS * 2 ** level;
}

/** Key of a tile. Indexes may be negative, up to ±2^43 on a level. */
function keyOf(level: number, index: number): number {
  return level * 2 ** 45 + index;
}

export class Tiles {
  readonly names = new Labels();
  generation = 0;
  /** Oldest generation from which completely read tiles are still valid. */
  private oldestValid = 0;
  /** Reason why visible tiles are missing, in one line; empty if there is none. */
  error = "";
  private readonly failed = new Map<string, Failed>();
  /** Number of answers so far. */
  arrived = 0;
  private readonly lanes = new Map<number, Map<number, Tile>>();
  private readonly pending = new Map<number, PendingRequest>();
  private readonly requested = new Set<string>();
  private wanted: { level: number; first: number; last: number; lanes: number[] } | null = null;
  private next = 1;
  private bytes = 0;
  private frame = 0;

  constructor(
    private readonly worker: Channel,
    private readonly changed: () => void,
  ) {
    worker.addEventListener("message", (event) => this.receive((event as MessageEvent<LanesAnswer>).data));
  }

  /** Labels by number. */
  get labels(): readonly string[] {
    return this.names.texts;
  }

  /** Colour number of each label. */
  get labelColours(): Uint8Array {
    return this.names.colours;
  }

  /** The worker, for requests other than tiles. */
  get channel(): Channel {
    return this.worker;
  }

  /** Whether all wanted tiles are present and up to date. */
  get settled(): boolean {
    return this.pending.size === 0 && this.missing(true).length === 0;
  }

  /** Whether all wanted tiles are present, possibly outdated. */
  get isComplete(): boolean {
    return this.missing(false).length === 0;
  }

  /** Marks tiles as outdated: all of them, or only those that were not read completely. */
  markOutdated(all = true): void {
    this.generation += 1;
    if (all) this.oldestValid = this.generation;
    this.changed();
  }

  /** Removes all tiles and cancels all requests, because times have moved. */
  clear(): void {
    this.lanes.clear();
    this.bytes = 0;
    this.cancelAll();
    this.markOutdated();
  }

  /** Cancels all requests. */
  private cancelAll(): void {
    for (const [request] of this.pending) this.worker.postMessage({ kind: "abort", request });
    this.pending.clear();
    this.requested.clear();
    this.failed.clear();
    this.error = "";
  }

  /** Sets the visible range. Missing tiles are requested, requests for others are cancelled. */
  want(lanes: number[], begin: number, end: number, scale: number): void {
    const level = levelFor(scale);
    const span = tileSpan(level);
    this.frame += 1;
    this.wanted = { level, first: Math.floor(begin / span), last: Math.floor(end / span), lanes };
    for (const [request, job] of this.pending) {
      const useful = job.level === level && job.index >= this.wanted.first && job.index <= this.wanted.last;
      if (!useful) this.worker.postMessage({ kind: "abort", request });
    }
    this.clearFailures(({ level: of, index, lane }) => of !== level || index < Math.floor(begin / span) || index > Math.floor(end / span) || !lanes.includes(lane));
    this.send();
  }

  /** Lanes and time ranges of visible tiles whose requests failed. */
  *failures(): Iterable<{ lane: number; from: number; to: number }> {
    for (const { lane, level, index } of this.failed.values()) yield { lane, from: index * tileSpan(level), to: (index + 1) * tileSpan(level) };
  }

  /** Removes failures of tiles that arrived or are no longer visible. */
  private clearFailures(isOver: (failed: Failed) => boolean): void {
    for (const [name, failed] of this.failed) if (isOver(failed)) this.failed.delete(name);
    if (this.failed.size === 0) this.error = "";
  }

  /** Wanted tiles that are missing, or with `orOld` also those that are outdated. */
  private missing(orOld: boolean): Job[] {
    const wanted = this.wanted;
    if (wanted === null) return [];
    const isMissing = (tile: Tile | undefined): boolean => tile === undefined || (orOld && this.isOld(tile));
    const jobs: Job[] = [];
    for (let index = wanted.first; index <= wanted.last; index++) {
      const key = keyOf(wanted.level, index);
      const lanes = wanted.lanes.filter((lane) => isMissing(this.lanes.get(lane)?.get(key)));
      if (lanes.length > 0) jobs.push({ index, lanes });
    }
    return jobs;
  }

  private isOld(tile: Tile): boolean {
    return tile.generation < (tile.whole ? this.oldestValid : this.generation);
  }

  private send(): void {
    const level = this.wanted?.level ?? 0;
    const missing = this.missing(false);
    this.sendJobs(missing, MAX_REQUESTS, false);
    // Failed tiles do not delay refreshes.
    const isComplete = missing.every(({ index, lanes }) => lanes.every((lane) => this.failed.has(nameOf(lane, level, index))));
    if (isComplete) this.sendJobs(this.missing(true), MAX_REFRESHES, true);
  }

  private sendJobs(jobs: Job[], most: number, again: boolean): void {
    const level = this.wanted?.level ?? 0;
    for (const { index, lanes } of jobs) {
      const open = lanes.filter((lane) => {
        const name = nameOf(lane, level, index);
        return !this.requested.has(name) && this.failed.get(name)?.waits !== true;
      });
      for (let at = 0; at < open.length; at += MAX_LANES_PER_REQUEST) {
        if (this.pending.size >= most) return;
        this.request({ level, index, lanes: open.slice(at, at + MAX_LANES_PER_REQUEST), again, generation: this.generation });
      }
    }
  }

  private request(job: PendingRequest): void {
    const { level, index, lanes, again } = job;
    const number = this.next++;
    const span = tileSpan(level);
    this.pending.set(number, job);
    for (const lane of lanes) this.requested.add(nameOf(lane, level, index));
    const [from, to] = [index * span, (index + 1) * span];
    const path = address("lanes", { ids: lanes.join(","), from, to, width: TILE_PIXELS, ...refreshParameter(again) });
    this.worker.postMessage({ kind: "lanes", request: number, url: new URL(path, location.href).href });
  }

  private receive(answer: LanesAnswer): void {
    const job = this.pending.get(answer.request);
    this.pending.delete(answer.request);
    if (job === undefined) return;
    for (const lane of job.lanes) this.requested.delete(nameOf(lane, job.level, job.index));
    if (answer.error !== undefined) {
      if (answer.aborted !== true) this.fail(answer.error, job);
    } else {
      this.clearFailures(({ lane, level, index }) => level === job.level && index === job.index && job.lanes.includes(lane));
      this.renumberLabels(answer);
      const byId = new Map(answer.lanes.map((lane) => [lane.id, lane]));
      for (const id of job.lanes) this.store(id, job, byId.get(id), answer.known);
    }
    this.arrived += 1;
    this.evict();
    this.names.removeUnused(() => this.labelLists());
    this.send();
    this.changed();
  }

  /** Repeats a failed request after a pause. Older tiles stay until then. */
  private fail(error: string, { level, index, lanes }: PendingRequest): void {
    this.error = error;
    const failed = lanes.map((lane) => ({ lane, level, index, waits: true }));
    for (const one of failed) this.failed.set(nameOf(one.lane, level, index), one);
    setTimeout(() => {
      for (const one of failed) one.waits = false;
      this.send();
    }, RETRY_INTERVAL);
  }

  private store(id: number, job: PendingRequest, data: LaneData | undefined, known: number): void {
    const span = tileSpan(job.level);
    const tile: Tile = {
      ...(data ?? {
        id,
        times: new Float64Array(0),
        styles: new Uint8Array(0),
        labels: new Int32Array(0),
        counts: new Uint32Array(0),
        shape: "boxes" as const,
      }),
      from: job.index * span,
      to: (job.index + 1) * span,
      used: this.frame,
      generation: job.generation,
      whole: known >= (job.index + 1) * span,
    };
    let tiles = this.lanes.get(id);
    if (tiles === undefined) this.lanes.set(id, (tiles = new Map()));
    const key = keyOf(job.level, job.index);
    const before = tiles.get(key);
    this.bytes += size(tile) - (before === undefined ? 0 : size(before));
    tiles.set(key, tile);
  }

  /** Replaces an answer's label numbers by those of this page. */
  private renumberLabels({ labels, lanes }: LanesAnswer): void {
    const numbers = Int32Array.from(labels, (label) => this.names.number(label));
    for (const lane of lanes) for (let at = 0; at < lane.labels.length; at++) lane.labels[at] = numbers[lane.labels[at] ?? -1] ?? -1;
  }

  private *labelLists(): Iterable<Int32Array> {
    for (const tiles of this.lanes.values()) for (const { labels } of tiles.values()) yield labels;
  }

  private evict(): void {
    if (this.bytes <= MAX_BYTES) return;
    const all: { lane: number; key: number; tile: Tile }[] = [];
    for (const [lane, tiles] of this.lanes) for (const [key, tile] of tiles) all.push({ lane, key, tile });
    all.sort((a, b) => a.tile.used - b.tile.used);
    for (const { lane, key, tile } of all) {
      if (this.bytes <= MAX_BYTES / 2) return;
      this.lanes.get(lane)?.delete(key);
      this.bytes -= size(tile);
    }
  }

  /** Visits the known parts of a lane between two times, in order and without overlap. Each part
   * comes from the best tile that is present. */
  cover(lane: number, begin: number, end: number, scale: number, visit: (tile: Tile, from: number, to: number) => void): void {
    const tiles = this.lanes.get(lane);
    if (tiles === undefined) return;
    this.coverAt(tiles, levelFor(scale), begin, end, visit);
  }

  private coverAt(
    tiles: Map<number, Tile>,
    level: number,
    begin: number,
    end: number,
    visit: (tile: Tile, from: number, to: number) => void,
  ): void {
    const span = tileSpan(level);
    for (let index = Math.floor(begin / span); index * span < end; index++) {
      const [from, to] = [Math.max(begin, index * span), Math.min(end, (index + 1) * span)];
      const tile = tiles.get(keyOf(level, index)) ?? this.coarser(tiles, level, from);
      if (tile === undefined) {
        this.finer(tiles, level, index, visit, from, to);
        continue;
      }
      tile.used = this.frame;
      // A coarser tile may replace several. Seams inside it would cut its slices.
      const until = Math.min(end, Math.max(to, this.reach(tiles, level, index, Math.min(end, tile.to), tile)));
      visit(tile, from, until);
      index = Math.max(index, Math.ceil(until / span) - 1);
    }
  }

  /** End of the range in which a coarser tile is needed: the next tile of the level itself, or the
   * end of what is visible. */
  private reach(tiles: Map<number, Tile>, level: number, index: number, end: number, tile: Tile): number {
    const span = tileSpan(level);
    if (tile.to - tile.from <= span) return tile.to;
    let next = index + 1;
    while (next * span < end && tiles.get(keyOf(level, next)) === undefined) next += 1;
    return next * span;
  }

  private coarser(tiles: Map<number, Tile>, level: number, at: number): Tile | undefined {
    for (let above = level + 1; above <= MAX_LEVEL; above++) {
      const tile = tiles.get(keyOf(above, Math.floor(at / tileSpan(above))));
      if (tile !== undefined) return tile;
    }
    return undefined;
  }

  private finer(
    tiles: Map<number, Tile>,
    level: number,
    index: number,
    visit: (tile: Tile, from: number, to: number) => void,
    from: number,
    to: number,
  ): void {
    for (let below = level - 1; below >= Math.max(0, level - 3); below--) {
      const parts = 2 ** (level - below);
      let found = false;
      for (let part = index * parts; part < (index + 1) * parts; part++) {
        const tile = tiles.get(keyOf(below, part));
        if (tile === undefined || tile.to <= from || tile.from >= to) continue;
        tile.used = this.frame;
        visit(tile, Math.max(from, tile.from), Math.min(to, tile.to));
        found = true;
      }
      if (found) return;
    }
  }

  /** First slice of a tile that ends after a time. */
  static firstAfter(tile: Tile, time: number): number {
    let [low, high] = [0, tile.styles.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((tile.times[2 * middle + 1] ?? 0) > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

function nameOf(lane: number, level: number, index: number): string {
  return `${lane}:${level}:${index}`;
}

/** Memory of a tile in bytes, with the browser's overhead. */
function size(tile: Tile): number {
  return 800 + tile.times.buffer.byteLength;
}
