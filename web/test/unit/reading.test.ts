import { describe, expect, it } from "vitest";
import { amountsText, readingAt, scaleOf, valueText } from "../../src/data/reading";
import type { Tile, Tiles } from "../../src/data/tiles";
import { quantity } from "../../src/data/time";

/** Tiles with one tile of four numbers each. */
function tilesOf(shape: "points" | "bins", from: number, to: number, times: number[]): Tiles {
  const tile = { id: 7, shape, times: Float64Array.from(times), styles: new Uint8Array(0), labels: new Int32Array(0), counts: new Uint32Array(0), from, to, used: 0, generation: 0, whole: true };
  return { cover: (_lane: number, begin: number, end: number, _scale: number, visit: (tile: Tile, from: number, to: number) => void) => visit(tile, begin, end) } as unknown as Tiles;
}

describe("a counter", () => {
  it("fills its lane with its range, however narrow and wherever that is", () => {
    for (const [min, max] of [[0, 0.1], [1_000_000, 1_000_010], [-5, -4], [-Number.MAX_VALUE, Number.MAX_VALUE]] as const) {
      const share = scaleOf({ min, max });
      expect([share(min), share(max)], `${min} to ${max}`).toEqual([0, 1]);
      expect(share(min / 2 + max / 2)).toBeCloseTo(0.5);
    }
    expect(scaleOf({ min: 3, max: 3 })(3)).toBe(0.5);
    // The lane's range may be outdated.
    expect(scaleOf({ min: 0, max: 1 })(7)).toBe(1);
  });

  it("gives its value at a time, and its range within a pixel", () => {
    const tiles = tilesOf("points", 0, 1024, [0, 3, 3, 3, 100, 1, 17, 5, 300, 4, 4, 4]);
    const lane = { id: 7, kind: "counter" as const };
    expect(readingAt(tiles, lane, 50, 1)).toMatchObject({ value: 3, least: 3, most: 3, begin: 0, end: 100 });
    expect(readingAt(tiles, lane, 100, 1)).toMatchObject({ value: 5, least: 1, most: 17 });
    expect(readingAt(tiles, lane, 200, 1)).toMatchObject({ value: 5, least: 5, most: 5 });
    expect(readingAt(tiles, lane, -1, 1)).toBeNull();
  });

  it("is written with its range and unit", () => {
    expect(valueText(17, [0, 20], "")).toBe("17 (0 … 20)");
    expect(valueText(1_000_003, [1_000_000, 1_000_010], "rows").replaceAll("\u202f", " ")).toBe("1 000 003 rows (1 000 000 … 1 000 010)");
    expect(valueText(3, [3, 3], "")).toBe("3");
    expect(valueText(null, [0, 1], "")).toBe("unknown");
  });
});

describe("a channel", () => {
  it("gives the event counts at a time", () => {
    const tiles = tilesOf("bins", 0, 1024, [10, 5, 0, 0, 11, 7, 40, 0, 12, 2, 0, 3, 500, 9, 0, 0]);
    const lane = { id: 7, kind: "density" as const };
    expect(readingAt(tiles, lane, 11.5, 1)).toMatchObject({ events: 14, lost: 40, overwritten: 3, begin: 10, end: 13 });
    expect(readingAt(tiles, lane, 300, 1)).toBeNull();
    expect(amountsText({ events: 14, lost: 40, overwritten: 3 })).toBe("14 events, 40 lost, 3 overwritten");
    expect(amountsText({ events: 1, lost: 0, overwritten: 0 })).toBe("1 event");
  });
});

describe("numbers", () => {
  it("have as many digits as distinguish them", () => {
    const text = (value: number, apart?: number) => quantity(value, apart).replaceAll("\u202f", " ");
    expect([text(0.25), text(-1234567), text(1e6 + 0.5, 1), text(0.1, 0.1), text(-0.5, 1)]).toEqual(["0.25", "-1 234 567", "1 000 000.5", "0.1", "-0.5"]);
    expect([text(Number.NaN), text(1e300), text(3e-9)]).toEqual(["–", "1.000e+300", "3.000e-9"]);
    expect(text(1 / 3, 1)).toBe("0.3333");
  });
});
