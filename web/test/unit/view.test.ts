import { describe, expect, it } from "vitest";
import { View } from "../../src/data/view";

/** View of a second, with a clock that the test moves. */
function given(): { view: View; wait: (milliseconds: number) => void } {
  let now = 0;
  const view = new View(() => {}, () => now);
  view.limits = { begin: 0, end: 1e9 };
  view.set({ begin: 0, end: 1e9 });
  return {
    view,
    wait: (milliseconds) => {
      now += milliseconds;
      view.step();
    },
  };
}

describe("a view", () => {
  it("keeps the time at the pointer in its place when it zooms", () => {
    const { view } = given();
    view.zoom(0.5, 250e6, false);
    expect(view.span).toBeCloseTo(0.5e9);
    expect((250e6 - view.begin) / view.span).toBeCloseTo(0.25);
  });

  it("reaches its target within 120 ms", () => {
    const { view, wait } = given();
    view.go({ begin: 100e6, end: 200e6 });
    expect(view.moving).toBe(true);
    wait(60);
    expect(view.span).toBeGreaterThan(100e6);
    wait(60);
    expect(view.moving).toBe(false);
    expect([view.begin, view.end]).toEqual([100e6, 200e6]);
  });

  it("undoes and redoes movements, those of one gesture together", () => {
    const { view, wait } = given();
    wait(1000);
    for (let at = 0; at < 5; at++) view.zoom(0.9, 0, false);
    wait(1000);
    view.go({ begin: 10, end: 20_000 });
    wait(1000);
    expect(view.undo()).toBe(true);
    wait(1000);
    expect(view.span).toBeCloseTo(1e9 * 0.9 ** 5);
    view.undo();
    wait(1000);
    expect(view.span).toBeCloseTo(1e9);
    view.redo();
    wait(1000);
    expect(view.span).toBeCloseTo(1e9 * 0.9 ** 5);
  });

  it("is limited to some nanoseconds and to the trace", () => {
    const { view } = given();
    view.zoom(1e-15, 5e8, false);
    expect(view.span).toBeGreaterThanOrEqual(40);
    view.zoom(1e15, 5e8, false);
    expect(view.span).toBeLessThan(1.3e9);
  });

  it("of the whole trace follows its growth", () => {
    const { view } = given();
    view.limit(0, 1e9);
    view.set(view.whole());
    view.limit(0, 3e9);
    expect(view.end).toBeGreaterThan(3e9);
  });
});
