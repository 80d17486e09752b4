import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("devicePixelRatio", 1);

const { mix, pack, paletteOf } = await import("../../src/draw/colours");
const { SliceStrip } = await import("../../src/draw/slice_strip");
const { Style } = await import("../../src/data/wire");
type Tile = import("../../src/data/tiles").Tile;
type LaneView = import("../../src/draw/lane_renderer").LaneView;
type LaneKind = import("../../src/data/wire").LaneKind;

const palette = paletteOf("light");
const ground = pack("#fdfcfa");
const WIDTH = 100;

interface Slice {
  begin: number;
  end: number;
  style: number;
  count?: number;
  label?: number;
}

function tileOf(from: number, to: number, slices: Slice[]): Tile {
  return {
    id: 1,
    shape: "boxes",
    times: Float64Array.from(slices.flatMap(({ begin, end }) => [begin, end])),
    styles: Uint8Array.from(slices, ({ style }) => style),
    labels: Int32Array.from(slices, ({ label = -1 }) => label),
    counts: Uint32Array.from(slices, ({ count = 1 }) => count),
    from,
    to,
    used: 0,
    generation: 0,
    whole: true,
  };
}

/** Paints tiles at one nanosecond per pixel. Returns the rows of the strip and its decor. */
function painted(kind: LaneKind, ...all: Tile[]) {
  const strip = new SliceStrip();
  strip.begin(WIDTH);
  const lane = {
    slot: { lane: { id: 1, kind } },
    begin: 0,
    scale: 1,
    ground: new Uint32Array(WIDTH).fill(ground),
    palette,
    tiles: { labelColours: new Uint8Array(8) },
    highlighted: -1,
    cover: (visit: (tile: Tile, from: number, to: number) => void) => all.forEach((tile) => visit(tile, tile.from, tile.to)),
  };
  const decor = strip.paint(lane as unknown as LaneView);
  const pixels = strip["pixels"];
  return { upper: pixels.slice(0, WIDTH), lower: pixels.slice(WIDTH, 2 * WIDTH), edge: pixels.slice(2 * WIDTH, 3 * WIDTH), decor };
}

describe("the strip of a lane", () => {
  it("gives a slice within a pixel as much colour as it is wide", () => {
    const { upper, lower } = painted("thread", tileOf(0, 100, [{ begin: 10.25, end: 10.75, style: Style.running }]));
    const expected = mix(ground, palette.packed[Style.running] ?? 0, 0.5);
    expect([upper[10], lower[10]]).toEqual([expected, expected]);
    expect([upper[9], upper[11]]).toEqual([ground, ground]);
  });

  it("keeps very short slices, and draws idle states low", () => {
    const { upper, lower } = painted("thread", tileOf(0, 100, [{ begin: 10, end: 10.001, style: Style.sleeping }]));
    expect(upper[10]).toBe(ground);
    expect(lower[10]).not.toBe(ground);
  });

  it("gives one slice of a pixel and many that fill it the same colour", () => {
    const parts = Array.from({ length: 8 }, (_, part) => ({ begin: 10 + part / 8, end: 10 + (part + 1) / 8, style: Style.running }));
    const { upper } = painted("thread", tileOf(0, 100, parts));
    const difference = (at: number): number => Math.abs(((upper[10] ?? 0) >>> at & 255) - ((palette.packed[Style.running] ?? 0) >>> at & 255));
    for (const at of [0, 8, 16]) expect(difference(at)).toBeLessThan(20);
  });

  it("continues a slice over the seam of two tiles", () => {
    const one = tileOf(0, 50, [{ begin: 10, end: 90, style: Style.running, label: 3 }]);
    const other = tileOf(50, 100, [{ begin: 10, end: 90, style: Style.running, label: 3 }]);
    const { upper, decor } = painted("cpu", one, other);
    expect(new Set(upper.slice(12, 89)).size).toBe(1);
    expect(decor.labels.map(({ x, width }) => [x, width])).toEqual([[10, 80]]);
  });

  it("fades samples and leaves their names out", () => {
    const sample = { begin: 10, end: 90, style: Style.running, label: 3 };
    const [seen, sampled] = [painted("cpu", tileOf(0, 100, [sample])), painted("cpu", tileOf(0, 100, [{ ...sample, count: 0 }]))];
    expect(seen.decor.labels).toHaveLength(1);
    expect(sampled.decor.labels).toHaveLength(0);
    expect(sampled.upper[50]).not.toBe(seen.upper[50]);
    expect(sampled.upper[50]).toBe(palette.shades[0].names[0]);
  });

  it("marks preemption by stripes and late jobs by teeth, beside colours and names", () => {
    const slices = [{ begin: 5, end: 45, style: Style.runnablePreempted, label: 3 }, { begin: 50, end: 60, style: Style.runnable }, { begin: 60, end: 61, style: Style.runnablePreempted }];
    const { decor } = painted("thread", tileOf(0, 100, slices));
    expect(decor.hatches).toEqual([{ x: 5, width: 40, style: Style.runnablePreempted }]);
    expect(decor.labels).toHaveLength(1);
    // Two late jobs side by side have teeth of their own.
    const late = painted("span", tileOf(0, 100, [{ begin: 5, end: 45, style: Style.lateJob }, { begin: 45, end: 80, style: Style.lateJob }]));
    expect(late.decor.hatches.map(({ x, width }) => [x, width])).toEqual([[5, 40], [45, 35]]);
  });

  it("draws an edge below slices that are too pale for their background", () => {
    const { lower, edge } = painted("thread", tileOf(0, 100, [{ begin: 10, end: 90, style: Style.sleeping }]));
    expect([lower[50], edge[50]]).toEqual([palette.packed[Style.sleeping], palette.edges[Style.sleeping]]);
    expect(palette.edges[Style.sleeping]).not.toBe(palette.packed[Style.sleeping]);
    expect(edge[5]).toBe(ground);
    const narrow = painted("thread", tileOf(0, 100, [{ begin: 10.2, end: 10.7, style: Style.runnable }]));
    expect(narrow.edge[10]).not.toBe(ground);
  });
});
