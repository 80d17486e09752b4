// Gestures on the timeline: dragging, double click, held keys, areas, the clock.

import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Page, Request } from "playwright-core";
import { area, sliceOf, onMadeUpData, settled } from "./server";

const RUNNING = 2;

describe("gestures on the timeline", () => {
  const made = onMadeUpData();
  let page: Page;
  const view = () => page.evaluate(() => ({ ...window.tompion!.app.view.target }));

  beforeAll(() => ({ page } = made));
  beforeEach(async () => {
    await page.evaluate(() => {
      const { app } = window.tompion!;
      app.setArea(null);
      app.unselect();
      app.scroll = 0;
      app.view.set({ begin: 100e6, end: 200e6 });
    });
    await settled(page);
  });

  it("follows a drag exactly, also up and down", async () => {
    const before = await view();
    const width = await page.evaluate(() => window.tompion!.timeline.width);
    await page.mouse.move(900, 250);
    await page.mouse.down();
    await page.mouse.move(700, 220, { steps: 5 });
    await page.mouse.up();
    const after = await view();
    const moved = (200 / width) * (before.end - before.begin);
    expect(after.begin - before.begin).toBeCloseTo(moved, -3);
    expect(after.end - after.begin).toBeCloseTo(before.end - before.begin, -1);
    const { scroll, most } = await page.evaluate(() => {
      const { app, timeline } = window.tompion!;
      return { scroll: app.scroll, most: Math.max(0, app.tracks.height - (timeline.height - timeline.divider)) };
    });
    expect(scroll).toBeCloseTo(Math.min(30, most), 0);
    expect(await page.evaluate(() => window.tompion!.app.selected)).toBeNull();
  });

  it("zooms to a slice by a double click", async () => {
    const slice = await sliceOf(page, "cpu", [RUNNING]);
    await page.mouse.dblclick(slice!.x, slice!.y);
    await page.waitForFunction(() => !window.tompion!.app.view.moving && window.tompion!.app.view.span < 50e6);
    const chosen = await page.evaluate(() => window.tompion!.app.selected!);
    const shown = await view();
    expect(shown.begin).toBeLessThan(chosen.begin);
    expect(shown.end).toBeGreaterThan(chosen.end);
    expect(shown.end - shown.begin).toBeLessThan(1.5 * (chosen.end - chosen.begin));
  });

  it("moves by W, A, S and D", async () => {
    await page.mouse.move(700, 200);
    const anchor = await page.evaluate(() => window.tompion!.app.hover!.time);
    const before = await view();
    await page.keyboard.press("w");
    const near = await view();
    expect(near.end - near.begin).toBeLessThan(before.end - before.begin);
    // The time at the pointer keeps its place.
    const share = (one: { begin: number; end: number }) => (anchor - one.begin) / (one.end - one.begin);
    expect(share(near)).toBeCloseTo(share(before), 6);
    await page.keyboard.press("s");
    const back = await view();
    expect(back.end - back.begin).toBeGreaterThan(near.end - near.begin);
    await page.keyboard.press("d");
    const later = await view();
    expect(later.begin).toBeGreaterThan(back.begin);
    await page.keyboard.press("a");
    expect((await view()).begin).toBeLessThan(later.begin);
    // A held key continues.
    await page.keyboard.down("d");
    await page.waitForFunction((from) => window.tompion!.app.view.begin > from + 50e6, back.begin);
    await page.keyboard.up("d");
  });

  it("fits the selection by F, and the whole trace by a second F", async () => {
    const slice = await sliceOf(page, "cpu", [RUNNING]);
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForSelector('#page-detail[data-ready="true"] .facts');
    await page.keyboard.press("f");
    await page.waitForFunction(() => !window.tompion!.app.view.moving && window.tompion!.app.view.span < 50e6);
    const { begin, end } = await page.evaluate(() => window.tompion!.app.selected!);
    const shown = await view();
    expect(shown.begin).toBeCloseTo(begin - 0.15 * (end - begin), -1);
    expect(shown.end).toBeCloseTo(end + 0.15 * (end - begin), -1);
    await page.keyboard.press("f");
    await page.waitForFunction(() => !window.tompion!.app.view.moving && window.tompion!.app.view.span > 400e6);
  });

  it("measures an area that is dragged with Shift, and fits it", async () => {
    await area(page, [500, 150], [800, 300]);
    const { chosen, expected, rows } = await page.evaluate(() => {
      const { app, timeline } = window.tompion!;
      const left = document.getElementById("stage")!.getBoundingClientRect().left;
      return { chosen: app.area!, expected: [timeline.timeAt(500 - left), timeline.timeAt(800 - left)], rows: app.area!.tracks.length };
    });
    expect(chosen.begin).toBe(Math.floor(expected[0]!));
    expect(chosen.end).toBe(Math.ceil(expected[1]!));
    expect(rows).toBeGreaterThan(0);
    expect(chosen.all).toBe(false);
    await page.waitForSelector('#page-selection[data-ready="true"]');
    await page.keyboard.press("f");
    await page.waitForFunction((length) => Math.abs(window.tompion!.app.view.target.end - window.tompion!.app.view.target.begin - 1.3 * length) < 1000, chosen.end - chosen.begin);
    // Along the ruler, the area is of all tracks.
    const ruler = (await page.locator("#ruler").boundingBox())!;
    await page.mouse.move(ruler.x + 100, ruler.y + 10);
    await page.mouse.down();
    await page.mouse.move(ruler.x + 300, ruler.y + 10, { steps: 3 });
    await page.mouse.up();
    expect(await page.evaluate(() => window.tompion!.app.area!.all)).toBe(true);
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => window.tompion!.app.area === null);
  });

  it("measures a collapsed process with all its threads, and a heading with everything below it", async () => {
    const asked: (string | null)[] = [];
    const counted: (string | null)[] = [];
    const note = (request: Request): void => {
      const { pathname, searchParams } = new URL(request.url());
      if (pathname.endsWith("/api/select")) asked.push(searchParams.get("tracks"));
      if (pathname.endsWith("/api/counts")) counted.push(searchParams.get("tracks"));
    };
    page.on("request", note);
    const fold = (id: number) =>
      page.evaluate((track) => {
        const { app } = window.tompion!;
        app.tracks.toggle(track);
        app.tracks.layout();
        app.notify("tracks");
      }, id);
    /** Drags over the row of one track. */
    const mark = async (id: number): Promise<void> => {
      await page.waitForFunction((track) => window.tompion!.timeline.placed.some(({ row }) => row.track.id === track), id);
      await settled(page);
      const { left, top, height } = await page.evaluate((track) => {
        const stage = document.getElementById("stage")!.getBoundingClientRect();
        const { row, y } = window.tompion!.timeline.placed.find((one) => one.row.track.id === track)!;
        return { left: stage.left, top: stage.top + y, height: row.height };
      }, id);
      await area(page, [left + 200, top + 6], [left + 500, top + height - 6]);
      await page.waitForFunction((track) => window.tompion!.app.area?.tracks.join() === String(track), id);
      await page.waitForSelector('#page-selection[data-ready="true"] .selection-head');
    };
    const [cpus, server] = [1, 20];
    await mark(cpus);
    expect(await page.textContent("#page-selection .selection-head")).toContain("4 tracks");
    await fold(server);
    await mark(server);
    expect(await page.textContent("#page-selection .selection-head")).toContain("8 tracks");
    expect(asked).toEqual(["1", "20"]);
    // Events are counted in steps, each of which continues the last.
    await expect.poll(async () => (await page.textContent(".events-card h3"))?.replace(/\D/g, "")).toBe("4723");
    expect(counted.at(-1)).toBe("20");
    await fold(server);
    page.off("request", note);
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => window.tompion!.app.area === null);
  });

  it("shows trace time, wall clock and UTC", async () => {
    const clock = page.locator("#clock");
    expect(await clock.textContent()).toBe("trace time");
    await page.keyboard.press("c");
    await page.waitForFunction(() => document.getElementById("clock")?.textContent === "wall clock");
    const slice = await sliceOf(page, "cpu", [RUNNING]);
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForSelector('#page-detail[data-ready="true"] .facts');
    const begin = () => page.locator("#page-detail .facts tr", { hasText: "start" }).first().locator("td").textContent();
    // The made-up machine is an hour ahead of UTC.
    expect(await begin()).toMatch(/^18:46:22\./);
    await page.keyboard.press("c");
    await page.waitForFunction(() => document.getElementById("clock")?.textContent === "UTC");
    expect(await begin()).toMatch(/^17:46:22\..*UTC$/);
    expect(await page.textContent("#place")).toContain("2016-03-04");
    expect(new URLSearchParams(await page.evaluate(() => new Promise<string>((done) => setTimeout(() => done(location.hash.slice(1)), 500)))).get("c")).toBe("utc");
    await page.keyboard.press("c");
    await page.waitForFunction(() => document.getElementById("clock")?.textContent === "trace time");
  });

  it("had no errors", () => expect(made.errors).toEqual([]));
});
