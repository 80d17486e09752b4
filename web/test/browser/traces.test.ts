// The page and the command together, on traces of the corpus.

import { renameSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { area, available, boxOf, launch, open, type Running, settled, span, view } from "./server";

const READY = [3, 4];

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => browser?.close());

describe.skipIf(!available("many-threads"))("many-threads", () => {
  let [server, page]: [Running, Page] = [] as never;
  const errors: string[] = [];
  beforeAll(async () => {
    server = await view("many-threads");
    page = await open(browser, server.url, errors);
  });
  afterAll(async () => {
    await page?.close();
    server?.stop();
  });

  it("opens with CPUs and threads", async () => {
    expect(await page.textContent("#trace-name")).toContain("many-threads");
    expect(await page.locator(".track.is-cpu").count()).toBeGreaterThan(0);
    expect(await page.evaluate(() => window.tompion?.app.tiles.labels.length ?? 0)).toBeGreaterThan(3);
    await expect.poll(() => new URL(page.url()).search, { timeout: 30_000 }).toBe("");
  });

  it("shows single nanoseconds", async () => {
    await page.evaluate(() => {
      const { begin, end } = window.tompion!.app.info;
      const middle = Math.floor((begin + end) / 2);
      window.tompion!.app.view.set({ begin: middle, end: middle + 1000 });
    });
    await settled(page);
    expect(await page.getAttribute("html", "data-level")).toBe("0");
    await page.keyboard.press("Home");
    await settled(page);
  });

  it("tells why a thread was late within three clicks", async () => {
    await page.keyboard.press("e");
    await page.waitForSelector('#page-selection[data-ready="true"] .waits .link');
    await page.locator("#page-selection .waits .link").first().click();
    await page.waitForSelector('#page-detail[data-ready="true"] .answer');
    expect((await page.textContent("#page-detail .answer"))?.length).toBeGreaterThan(8);
    await settled(page);
    expect(await boxOf(page, "thread", READY)).not.toBeNull();
    await page.keyboard.press("Escape");
  });

  it("finds an event by its name, and the next", async () => {
    await page.keyboard.press("Home");
    await settled(page);
    await page.keyboard.press("/");
    await page.keyboard.type("sched_switch");
    await page.keyboard.press("Enter");
    await page.waitForSelector('#search-status[data-state="done"]');
    const first = await page.evaluate(() => window.tompion?.app.cursor);
    expect(first).not.toBeNull();
    await page.keyboard.press("Enter");
    await page.waitForFunction((before) => window.tompion?.app.cursor !== before, first);
    await page.keyboard.press("Escape");
  });

  it("finds the very first event", async () => {
    await page.keyboard.press("Home");
    await settled(page);
    await page.keyboard.press("/");
    await page.keyboard.press("Control+a");
    await page.keyboard.type("sched_waking");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => window.tompion?.app.cursor === window.tompion?.app.info.begin);
    await page.keyboard.press("Escape");
  });

  it("lists events, filtered", async () => {
    await page.evaluate(() => window.tompion?.app.setArea(null));
    await page.locator("#tab-events").click();
    await page.waitForSelector('#page-events[data-ready="true"] .table-view .event-row');
    await page.fill("#page-events .glob", "sched_wak*");
    await page.waitForFunction(() => {
      const names = [...document.querySelectorAll(".table-view .event-row span:nth-child(4)")];
      return names.length > 0 && names.every((name) => name.textContent?.startsWith("sched_wak"));
    });
    await page.fill("#page-events .glob", "");
    await page.locator(".table-view .event-row").first().click();
    await page.waitForFunction(() => window.tompion?.app.cursor !== null);
  });

  it("measures an area", async () => {
    await area(page, [420, 150], [900, 300]);
    await page.locator("#tab-selection").click();
    await page.waitForSelector('#page-selection[data-ready="true"] .card');
    expect(await page.textContent("#page-selection")).toContain("Threads");
  });

  it("goes from box to box", async () => {
    await page.keyboard.press("Escape");
    await page.keyboard.press("Home");
    await page.evaluate(() => {
      window.tompion!.app.scroll = 0;
      window.tompion!.app.draw();
    });
    await settled(page);
    const box = await boxOf(page, "cpu", [1, 2]);
    await page.mouse.click(box!.x, box!.y);
    await page.waitForSelector('#page-detail[data-ready="true"] .facts');
    const begin = await page.evaluate(() => window.tompion?.app.selected?.begin ?? 0);
    await page.keyboard.press(".");
    await page.waitForFunction((before) => (window.tompion?.app.selected?.begin ?? 0) > before, begin);
  });

  it("did all this without an error", () => expect(errors).toEqual([]));
});

describe.skipIf(!available("glxgears-cyg-profile"))("glxgears-cyg-profile", () => {
  it("shows functions as a flame graph, and survives a zoom to the end", async () => {
    const server = await view("glxgears-cyg-profile");
    try {
      const page = await open(browser, server.url);
      const whole = await span(page);
      await page.locator("#tab-flame").click();
      await page.waitForSelector('#page-flame[data-ready="true"] canvas');
      await page.mouse.move(700, 250);
      for (let at = 0; at < 12; at++) await page.mouse.wheel(0, -600);
      await settled(page);
      expect(await span(page)).toBeLessThan(whole);
      await page.close();
    } finally {
      server.stop();
    }
  });
});

describe.skipIf(!available("glxgears-cyg-profile"))("a trace that vanishes", () => {
  it("is told", async () => {
    const server = await view("glxgears-cyg-profile");
    try {
      const page = await open(browser, server.url);
      const here = join(server.folder, "glxgears-cyg-profile");
      renameSync(here, `${here}-elsewhere`);
      await page.waitForSelector(".chip.lost");
      expect(await page.textContent(".chip.lost")).toContain("glxgears-cyg-profile");
      await page.close();
    } finally {
      server.stop();
    }
  });
});

describe.skipIf(!available("ros2"))("ros2", () => {
  it("opens, and refuses who has no token", async () => {
    const server = await view("ros2");
    try {
      const page = await open(browser, server.url);
      expect(await page.locator(".track:not([hidden])").count()).toBeGreaterThan(1);
      const stranger = await fetch(`${new URL(server.url).origin}/api/trace`);
      expect(stranger.status).toBe(403);
      await page.close();
    } finally {
      server.stop();
    }
  });
});
