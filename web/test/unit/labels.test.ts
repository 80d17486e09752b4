// Numbers of labels, and the removal of unused ones.

import { describe, expect, it } from "vitest";
import { Labels } from "../../src/data/labels";

describe("labels", () => {
  it("have one number each", () => {
    const labels = new Labels();
    const numbers = ["read", "write", "read"].map((text) => labels.number(text));
    expect(numbers).toEqual([0, 1, 0]);
    expect([labels.find("write"), labels.find("open"), labels.texts]).toEqual([1, -1, ["read", "write"]]);
  });

  it("without slices are removed when there are many, and slices keep theirs", () => {
    const labels = new Labels(10_000);
    const shown = Int32Array.from({ length: 5 }, (_, at) => labels.number(`shown ${at}`));
    for (let at = 0; at < 2000; at++) {
      labels.number(`gone ${at}`);
      labels.removeUnused(() => [shown]);
      expect(labels.texts.length).toBeLessThan(200);
    }
    expect([...shown].map((number) => labels.texts[number])).toEqual([0, 1, 2, 3, 4].map((at) => `shown ${at}`));
    expect(labels.number("shown 3")).toBe(shown[3]);
  });

  it("of slices stay even beyond the limit, and slices without one have none", () => {
    const labels = new Labels(1000);
    const shown = Int32Array.from({ length: 300 }, (_, at) => (at % 3 === 0 ? -1 : labels.number(`label ${at}`)));
    labels.removeUnused(() => [shown]);
    expect([...shown].map((number) => labels.texts[number])).toEqual(Array.from({ length: 300 }, (_, at) => (at % 3 === 0 ? undefined : `label ${at}`)));
    // The next attempt waits until there are twice as many.
    labels.number("one more");
    labels.removeUnused(() => {
      throw new Error("looked through again");
    });
  });
});
