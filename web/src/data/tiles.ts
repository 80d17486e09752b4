// The cache of what lanes show. Time is cut into tiles: at level L, one has 1024 pixels of 2^L
// nanoseconds. What the screen needs is asked of the server; until it comes, other levels' tiles
// stand in.

import { address, asked } from "./api";
import type { Channel } from "./channel";
import { Labels } from "./labels";
import type { LaneData, LanesAnswer } from "./worker";

export const TILE_PIXELS = 1024;
/** No level is coarser: 2^43 ns a pixel are 2.4 hours. */
export const LEVELS = 43;
const LANES_A_REQUEST = 48;
const REQUESTS_AT_ONCE = 4;
/** After how many milliseconds is asked again for what couldn't be had. */
export const RETRY = 1000;
/** Of those that only say anew what is drawn already. */
const REFRESHES_AT_ONCE = 2;
const MOST_BYTES = 48 * 1024 * 1024;

export interface Tile extends LaneData {
  /** What the tile covers. */
  from: number;
  to: number;
  /** The frame that drew it last. */
  used: number;
  /** Tiles of an index that has grown since are asked for again, and drawn until the answer
   * comes. */
  generation: number;
  /** Whether all of it was read when it was asked for. */
  whole: boolean;
}

interface Job {
  index: number;
  lanes: number[];
}

/** A tile that couldn't be had. */
interface Failed {
  lane: number;
  level: number;
  index: number;
  /** It is not asked for again yet. */
  waits: boolean;
}

interface Underway extends Job {
  level: number;
  /** Whether it is drawn already, from an older answer. */
  again: boolean;
  /** When it was asked for. */
  generation: number;
}

/** The level for a scale in nanoseconds a pixel: its own pixels are never coarser than the
 * screen's. */
export function levelFor(scale: number): number {
  return Math.min(LEVELS, Math.max(0, Math.floor(Math.log2(Math.max(1, scale)))));
}

/** How long a tile of a level is. */
export function tileSpan(level: number): number {
  return TILE_PIXELS * 2 ** level;
}

/** Times, and so numbers of tiles, may be negative: at most 2^43 of them either way at a level. */
function keyOf(level: number, index: number): number {
  return level * 2 ** 45 + index;
}

export class Tiles {
  readonly names = new Labels();
  generation = 0;
  /** Tiles that were read whole are good from this generation on. */
  private least = 0;
  /** Why something in sight couldn't be had, in one line. */
  error = "";
  private readonly failed = new Map<string, Failed>();
  /** How many answers came: the page redraws, tests wait. */
  arrived = 0;
  private readonly lanes = new Map<number, Map<number, Tile>>();
  private readonly underway = new Map<number, Underway>();
  private readonly asked = new Set<string>();
  private wanted: { level: number; first: number; last: number; lanes: number[] } | null = null;
  private next = 1;
  private bytes = 0;
  private frame = 0;

  constructor(
    private readonly worker: Channel,
    private readonly changed: () => void,
  ) {
    worker.addEventListener("message", (event) => this.take((event as MessageEvent<LanesAnswer>).data));
  }

  /** Labels by their numbers. */
  get labels(): readonly string[] {
    return this.names.texts;
  }

  /** By label: the number of its colour. */
  get labelColours(): Uint8Array {
    return this.names.colours;
  }

  /** The worker, for what is asked for apart from tiles. */
  get channel(): Channel {
    return this.worker;
  }

  /** Whether all that was wanted is there, as the server knows it now. */
  get settled(): boolean {
    return this.underway.size === 0 && this.missing(true).length === 0;
  }

  /** Whether all that was wanted is there, be it from before the server knew more. */
  get there(): boolean {
    return this.missing(false).length === 0;
  }

  /** Tiles are of an older state of the index: all of them, or those alone of which something was
   * not read. */
  outdated(all = true): void {
    this.generation += 1;
    if (all) this.least = this.generation;
    this.changed();
  }

  /** Forgets everything, also what is being asked: times have moved. */
  clear(): void {
    this.lanes.clear();
    this.bytes = 0;
    this.drop();
    this.outdated();
  }

  /** What was asked is of no use any more. */
  private drop(): void {
    for (const [request] of this.underway) this.worker.postMessage({ kind: "abort", request });
    this.underway.clear();
    this.asked.clear();
    this.failed.clear();
    this.error = "";
  }

  /** What the screen shows now: what is missing is asked for, what nobody wants any more is not. */
  want(lanes: number[], begin: number, end: number, scale: number): void {
    const level = levelFor(scale);
    const span = tileSpan(level);
    this.frame += 1;
    this.wanted = { level, first: Math.floor(begin / span), last: Math.floor(end / span), lanes };
    for (const [request, job] of this.underway) {
      const useful = job.level === level && job.index >= this.wanted.first && job.index <= this.wanted.last;
      if (!useful) this.worker.postMessage({ kind: "abort", request });
    }
    this.forgive(({ level: of, index, lane }) => of !== level || index < Math.floor(begin / span) || index > Math.floor(end / span) || !lanes.includes(lane));
    this.send();
  }

  /** From when to when something in sight couldn't be had, and of which lane. */
  *failures(): Iterable<{ lane: number; from: number; to: number }> {
    for (const { lane, level, index } of this.failed.values()) yield { lane, from: index * tileSpan(level), to: (index + 1) * tileSpan(level) };
  }

  /** Nothing is said any more of tiles that came, or that nobody wants. */
  private forgive(isOver: (failed: Failed) => boolean): void {
    for (const [name, failed] of this.failed) if (isOver(failed)) this.failed.delete(name);
    if (this.failed.size === 0) this.error = "";
  }

  /** What is wanted and isn't there; or what is there, but of an older state, too. */
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
    return tile.generation < (tile.whole ? this.least : this.generation);
  }

  private send(): void {
    const level = this.wanted?.level ?? 0;
    const missing = this.missing(false);
    this.sendSome(missing, REQUESTS_AT_ONCE, false);
    // What can't be had keeps nobody from asking for the rest.
    const isThere = missing.every(({ index, lanes }) => lanes.every((lane) => this.failed.has(nameOf(lane, level, index))));
    if (isThere) this.sendSome(this.missing(true), REFRESHES_AT_ONCE, true);
  }

  private sendSome(jobs: Job[], most: number, again: boolean): void {
    const level = this.wanted?.level ?? 0;
    for (const { index, lanes } of jobs) {
      const open = lanes.filter((lane) => {
        const name = nameOf(lane, level, index);
        return !this.asked.has(name) && this.failed.get(name)?.waits !== true;
      });
      for (let at = 0; at < open.length; at += LANES_A_REQUEST) {
        if (this.underway.size >= most) return;
        this.ask({ level, index, lanes: open.slice(at, at + LANES_A_REQUEST), again, generation: this.generation });
      }
    }
  }

  private ask(job: Underway): void {
    const { level, index, lanes, again } = job;
    const request = this.next++;
    const span = tileSpan(level);
    this.underway.set(request, job);
    for (const lane of lanes) this.asked.add(nameOf(lane, level, index));
    const [from, to] = [index * span, (index + 1) * span];
    const path = address("lanes", { ids: lanes.join(","), from, to, width: TILE_PIXELS, ...asked(again) });
    this.worker.postMessage({ kind: "lanes", request, url: new URL(path, location.href).href });
  }

  private take(answer: LanesAnswer): void {
    const job = this.underway.get(answer.request);
    this.underway.delete(answer.request);
    if (job === undefined) return;
    for (const lane of job.lanes) this.asked.delete(nameOf(lane, job.level, job.index));
    if (answer.error !== undefined) {
      if (answer.aborted !== true) this.fail(answer.error, job);
    } else {
      this.forgive(({ lane, level, index }) => level === job.level && index === job.index && job.lanes.includes(lane));
      this.learn(answer);
      const there = new Map(answer.lanes.map((lane) => [lane.id, lane]));
      for (const id of job.lanes) this.keep(id, job, there.get(id), answer.known);
    }
    this.arrived += 1;
    this.evict();
    this.names.forget(() => this.labelLists());
    this.send();
    this.changed();
  }

  /** A request that failed is sent again, but not at once. What was there stays till then. */
  private fail(error: string, { level, index, lanes }: Underway): void {
    this.error = error;
    const failed = lanes.map((lane) => ({ lane, level, index, waits: true }));
    for (const one of failed) this.failed.set(nameOf(one.lane, level, index), one);
    setTimeout(() => {
      for (const one of failed) one.waits = false;
      this.send();
    }, RETRY);
  }

  private keep(id: number, job: Underway, data: LaneData | undefined, known: number): void {
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

  /** Gives boxes the numbers that labels have here. */
  private learn({ labels, lanes }: LanesAnswer): void {
    const numbers = Int32Array.from(labels, (label) => this.names.number(label));
    for (const lane of lanes) for (let at = 0; at < lane.labels.length; at++) lane.labels[at] = numbers[lane.labels[at] ?? -1] ?? -1;
  }

  private *labelLists(): Iterable<Int32Array> {
    for (const tiles of this.lanes.values()) for (const { labels } of tiles.values()) yield labels;
  }

  private evict(): void {
    if (this.bytes <= MOST_BYTES) return;
    const all: { lane: number; key: number; tile: Tile }[] = [];
    for (const [lane, tiles] of this.lanes) for (const [key, tile] of tiles) all.push({ lane, key, tile });
    all.sort((a, b) => a.tile.used - b.tile.used);
    for (const { lane, key, tile } of all) {
      if (this.bytes <= MOST_BYTES / 2) return;
      this.lanes.get(lane)?.delete(key);
      this.bytes -= size(tile);
    }
  }

  /** Visits what is known of a lane between two moments, in order of time and without overlap,
   * best first. */
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
      // A coarser tile may stand in for several: seams inside it would cut its boxes.
      const until = Math.min(end, Math.max(to, this.reach(tiles, level, index, Math.min(end, tile.to), tile)));
      visit(tile, from, until);
      index = Math.max(index, Math.ceil(until / span) - 1);
    }
  }

  /** Up to where, or to what is seen at most, no tile of the level itself takes over from a
   * coarser one. */
  private reach(tiles: Map<number, Tile>, level: number, index: number, end: number, tile: Tile): number {
    const span = tileSpan(level);
    if (tile.to - tile.from <= span) return tile.to;
    let next = index + 1;
    while (next * span < end && tiles.get(keyOf(level, next)) === undefined) next += 1;
    return next * span;
  }

  private coarser(tiles: Map<number, Tile>, level: number, at: number): Tile | undefined {
    for (let above = level + 1; above <= LEVELS; above++) {
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

  /** The first of a tile's boxes that ends after a moment. */
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

/** What a tile takes, with what the browser needs to know of it. */
function size(tile: Tile): number {
  return 800 + tile.times.buffer.byteLength;
}
