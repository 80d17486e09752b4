import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("ImageData", class {
  readonly data: Uint8ClampedArray;
  constructor(readonly width: number, readonly height: number) {
    this.data = new Uint8ClampedArray(4 * width * height);
  }
});

const { mix, pack } = await import("../../src/draw/colours");
const { Columns } = await import("../../src/draw/columns");
const { Picture } = await import("../../src/draw/picture");
type Tile = import("../../src/data/tiles").Tile;

const [WIDTH, HEIGHT] = [64, 30];
const [ground, ink] = [pack("#ffffff"), pack("#204060")];

/** A tile of points (time, least, most, value) or of bins (time, events, lost, overwritten). */
function tileOf(shape: Tile["shape"], from: number, to: number, ...all: [number, number, number, number][]): Tile {
  const none = { styles: new Uint8Array(0), labels: new Int32Array(0), counts: new Uint32Array(0) };
  return { id: 1, shape, times: Float64Array.from(all.flat()), ...none, from, to, used: 0, generation: 0, whole: true };
}

/** An empty picture, a nanosecond a pixel. */
function empty() {
  const picture = new Picture();
  picture.begin(WIDTH, HEIGHT, { at: [], wide: 1, colour: 0 });
  picture.rows(picture.ground(ground), 0, HEIGHT);
  const place = { top: 0, bottom: HEIGHT, begin: 0, scale: 1 };
  /** Rows of a column that have a colour. */
  const rows = (x: number, colour: number): number[] =>
    Array.from({ length: HEIGHT }, (_, y) => y).filter((y) => picture.pixels[y * WIDTH + x] === colour);
  return { picture, place, rows };
}

describe("a counter", () => {
  const look = { colour: ink, thick: 1, tint: 0.25 };
  const row = (value: number): number => 20 - value;

  it("goes in steps from value to value, over the seam of two tiles and up to the edge, with a tint below", () => {
    const { picture, place, rows } = empty();
    const tiles = [tileOf("points", 0, 32, [10, 2, 2, 2], [20, 8, 8, 8]), tileOf("points", 32, 64, [20, 8, 8, 8], [40, 4, 4, 4])];
    const drawn = new Columns(picture).counter(place, (visit) => tiles.forEach((tile) => visit(tile, tile.from, tile.to)), row, look);
    expect(drawn).toBe(true);
    expect(rows(9, ground)).toHaveLength(HEIGHT);
    expect([rows(10, ink), rows(19, ink), rows(21, ink), rows(39, ink), rows(63, ink)]).toEqual([[18], [18], [12], [12], [16]]);
    // Where the value changes, the line stands upright.
    expect(rows(20, ink)).toEqual([12, 13, 14, 15, 16, 17, 18]);
    expect(rows(15, mix(ground, ink, 0.25))).toEqual(Array.from({ length: HEIGHT - 19 }, (_, y) => 19 + y));
  });

  it("has no line over a gap, up to the next value or the edge", () => {
    const { picture, place, rows } = empty();
    const gap = (at: number): [number, number, number, number] => [at, Number.NaN, Number.NaN, Number.NaN];
    const tile = tileOf("points", 0, 64, [10, 2, 2, 2], gap(20), [40, 4, 4, 4], gap(50));
    expect(new Columns(picture).counter(place, (visit) => visit(tile, 0, 64), row, look)).toBe(true);
    expect([rows(19, ink), rows(40, ink), rows(49, ink)]).toEqual([[18], [16], [16]]);
    for (const x of [21, 30, 39, 51, 63]) expect(rows(x, ground)).toHaveLength(HEIGHT);
  });

  it("has within a pixel the least and the most that it was there", () => {
    const { picture, place, rows } = empty();
    new Columns(picture).counter(place, (visit) => visit(tileOf("points", 0, 64, [10, 1, 9, 5]), 0, 64), row, look);
    expect(rows(10, ink)).toEqual([11, 12, 13, 14, 15, 16, 17, 18, 19]);
    expect(rows(11, ink)).toEqual([15]);
  });

  it("is not there where nothing is known, and keeps to the rows that are seen", () => {
    const { picture, place, rows } = empty();
    const columns = new Columns(picture);
    expect(columns.counter(place, () => {}, row, look)).toBe(false);
    picture.clipTo({ top: 0, bottom: 10 });
    columns.counter(place, (visit) => visit(tileOf("points", 0, 64, [0, 2, 2, 2]), 0, 64), row, look);
    expect(rows(5, ground)).toHaveLength(HEIGHT);
  });
});

describe("a channel's events", () => {
  it("are as high as there are many in a pixel, by square roots, whatever their bins' width", () => {
    const { picture, place, rows } = empty();
    // A tile's bins are a 1024th of it: four of the one and a quarter of the other are a pixel.
    const fine = tileOf("bins", 0, 256, ...[40, 40.25, 40.5, 40.75].map((at): [number, number, number, number] => [at, 4, 0, 0]));
    const coarse = tileOf("bins", 0, 4096, [8, 16, 0, 0]);
    new Columns(picture).density(place, (visit) => [coarse, fine].forEach((tile) => visit(tile, 0, 64)), ink);
    expect(rows(40, ink)).toHaveLength(28);
    expect([8, 9, 10, 11].map((x) => rows(x, ink).length)).toEqual([14, 14, 14, 14]);
    expect(rows(12, ink)).toHaveLength(0);
  });

  it("that are missing are told as stretches of three pixels and more", () => {
    const { picture, place } = empty();
    const tile = tileOf("bins", 0, 1024, [5, 1, 1, 0], [20, 1, 2, 0], [21, 1, 2, 0], [22, 1, 0, 7]);
    const missing = new Columns(picture).density(place, (visit) => visit(tile, 0, 64), ink);
    expect(missing.lost).toEqual([{ x: 4, width: 3 }, { x: 19, width: 4 }]);
    expect(missing.overwritten).toEqual([{ x: 21, width: 3 }]);
  });
});
