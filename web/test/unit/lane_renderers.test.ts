import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("devicePixelRatio", 1);
vi.stubGlobal("ImageData", class {
  readonly data: Uint8ClampedArray;
  constructor(readonly width: number, readonly height: number) {
    this.data = new Uint8ClampedArray(4 * width * height);
  }
});

const { mix, pack, paletteOf } = await import("../../src/draw/colours");
const { CounterRenderer } = await import("../../src/draw/counter_lane");
const { DensityRenderer, runs } = await import("../../src/draw/density_lane");
const { Patterns } = await import("../../src/draw/patterns");
const { Picture } = await import("../../src/draw/picture");
type LaneView = import("../../src/draw/lane_renderer").LaneView;
type Tile = import("../../src/data/tiles").Tile;

const [WIDTH, HEIGHT] = [64, 30];
const palette = paletteOf("light");
const ground = pack("#ffffff");

/** Tile of points (time, least, most, value) or of bins (time, events, lost, overwritten). */
function tileOf(shape: Tile["shape"], from: number, to: number, ...all: [number, number, number, number][]): Tile {
  const none = { styles: new Uint8Array(0), labels: new Int32Array(0), counts: new Uint32Array(0) };
  return { id: 1, shape, times: Float64Array.from(all.flat()), ...none, from, to, used: 0, generation: 0, whole: true };
}

/** Empty picture at one nanosecond per pixel. */
function empty() {
  const picture = new Picture();
  picture.begin(WIDTH, HEIGHT, { at: [], wide: 1, colour: 0 });
  picture.rows(picture.ground(ground), 0, HEIGHT);
  /** Rows of a column that have a colour. */
  const rows = (x: number, colour: number): number[] =>
    Array.from({ length: HEIGHT }, (_, y) => y).filter((y) => picture.pixels[y * WIDTH + x] === colour);
  return { picture, rows };
}

/** Lane of these tiles. Its counter has value 0 in row 20 and 17 in row 3. */
function laneOf(tiles: Tile[], visible?: [number, number]): LaneView {
  const lane = {
    slot: { lane: { id: 1, kind: "counter", min: 0, max: 17 }, height: 22 },
    y: 0,
    top: 0,
    bottom: HEIGHT,
    begin: 0,
    scale: 1,
    palette,
    cover: (visit: (tile: Tile, from: number, to: number) => void) => tiles.forEach((tile) => visit(tile, ...(visible ?? [tile.from, tile.to]))),
  };
  return lane as unknown as LaneView;
}

describe("a counter", () => {
  const ink = pack(palette.counter);

  function drawnOn(picture: InstanceType<typeof Picture>, ...tiles: Tile[]): boolean {
    const renderer = new CounterRenderer(picture);
    renderer.begin();
    return renderer.paint(laneOf(tiles)) !== null;
  }

  it("steps from value to value, over the seam of two tiles and up to the edge, with a tint below", () => {
    const { picture, rows } = empty();
    const tiles = [tileOf("points", 0, 32, [10, 2, 2, 2], [20, 8, 8, 8]), tileOf("points", 32, 64, [20, 8, 8, 8], [40, 4, 4, 4])];
    expect(drawnOn(picture, ...tiles)).toBe(true);
    expect(rows(9, ground)).toHaveLength(HEIGHT);
    expect([rows(10, ink), rows(19, ink), rows(21, ink), rows(39, ink), rows(63, ink)]).toEqual([[18], [18], [12], [12], [16]]);
    // Where the value changes, the line stands upright.
    expect(rows(20, ink)).toEqual([12, 13, 14, 15, 16, 17, 18]);
    expect(rows(15, mix(ground, ink, palette.counterTint))).toEqual(Array.from({ length: HEIGHT - 19 }, (_, y) => 19 + y));
  });

  it("has no line over a gap, up to the next value or the edge", () => {
    const { picture, rows } = empty();
    const gap = (at: number): [number, number, number, number] => [at, Number.NaN, Number.NaN, Number.NaN];
    const tile = tileOf("points", 0, 64, [10, 2, 2, 2], gap(20), [40, 4, 4, 4], gap(50));
    expect(drawnOn(picture, tile)).toBe(true);
    expect([rows(19, ink), rows(40, ink), rows(49, ink)]).toEqual([[18], [16], [16]]);
    for (const x of [21, 30, 39, 51, 63]) expect(rows(x, ground)).toHaveLength(HEIGHT);
  });

  it("spans its minimum and maximum within a pixel", () => {
    const { picture, rows } = empty();
    drawnOn(picture, tileOf("points", 0, 64, [10, 1, 9, 5]));
    expect(rows(10, ink)).toEqual([11, 12, 13, 14, 15, 16, 17, 18, 19]);
    expect(rows(11, ink)).toEqual([15]);
  });

  it("is not drawn where nothing is known, nor outside the visible rows", () => {
    const { picture, rows } = empty();
    expect(drawnOn(picture)).toBe(false);
    picture.clipTo({ top: 0, bottom: 10 });
    drawnOn(picture, tileOf("points", 0, 64, [0, 2, 2, 2]));
    expect(rows(5, ground)).toHaveLength(HEIGHT);
  });
});

describe("a channel's events", () => {
  const ink = pack(palette.density);

  function paint(picture: InstanceType<typeof Picture>, ...tiles: Tile[]): InstanceType<typeof DensityRenderer> {
    const renderer = new DensityRenderer(picture, new Patterns());
    renderer.begin();
    renderer.paint(laneOf(tiles, [0, 64]));
    return renderer;
  }

  it("are drawn as square roots of counts per pixel, whatever the width of their bins", () => {
    const { picture, rows } = empty();
    // A tile's bins are a 1024th of it: four of the one and a quarter of the other are a pixel.
    const fine = tileOf("bins", 0, 256, ...[40, 40.25, 40.5, 40.75].map((at): [number, number, number, number] => [at, 4, 0, 0]));
    const coarse = tileOf("bins", 0, 4096, [8, 16, 0, 0]);
    paint(picture, coarse, fine);
    expect(rows(40, ink)).toHaveLength(28);
    expect([8, 9, 10, 11].map((x) => rows(x, ink).length)).toEqual([14, 14, 14, 14]);
    expect(rows(12, ink)).toHaveLength(0);
  });

  it("that are missing are marked by runs of at least three pixels", () => {
    const { picture } = empty();
    const tile = tileOf("bins", 0, 1024, [5, 1, 1, 0], [20, 1, 2, 0], [21, 1, 2, 0], [22, 1, 0, 7]);
    const renderer = paint(picture, tile);
    expect(runs(renderer["lost"])).toEqual([{ x: 4, width: 3 }, { x: 19, width: 4 }]);
    expect(runs(renderer["overwritten"])).toEqual([{ x: 21, width: 3 }]);
  });
});
