// The page with the real server, on traces of the corpus.

import { cpSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { area, available, sliceOf, CORPUS, launch, open, settled, span, view, viewIn, type Viewing } from "./server";

const READY = [3, 4];

/** Filters the table of events by names, and waits until it shows the rows of that filter. */
async function filterEvents(page: Page, glob: string): Promise<void> {
  await page.fill("#page-events .glob", glob);
  const isShown = (names: string): boolean => {
    const table = document.getElementById("page-events")!;
    return window.tompion?.app.table.names === names && table.dataset["ready"] === "true";
  };
  await page.waitForFunction(isShown, glob);
}

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => browser?.close());

describe.skipIf(!available("many-threads"))("many-threads", () => {
  let [server, page]: [Viewing, Page] = [] as never;
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

  it("says why a thread was late within three clicks", async () => {
    await page.keyboard.press("e");
    await page.waitForSelector('#page-selection[data-ready="true"] .waits .link');
    await page.locator("#page-selection .waits .link").first().click();
    await page.waitForSelector('#page-detail[data-ready="true"] .answer');
    expect((await page.textContent("#page-detail .answer"))?.length).toBeGreaterThan(8);
    await settled(page);
    expect(await sliceOf(page, "thread", READY)).not.toBeNull();
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
    // Without a selection, no row of the filtered table is chosen.
    await page.evaluate(() => {
      window.tompion?.app.setArea(null);
      window.tompion?.app.unselect();
    });
    await page.locator("#tab-events").click();
    await page.waitForSelector('#page-events[data-ready="true"] .table-view .event-row');
    await filterEvents(page, "sched_wak*");
    const names = await page.locator(".table-view .event-row span:nth-child(4)").allTextContents();
    expect(names.length).toBeGreaterThan(0);
    expect(names.filter((name) => !name.startsWith("sched_wak"))).toEqual([]);
    // The selection of the timeline is shown among them.
    const scroll = await page.evaluate(() => {
      const { app } = window.tompion!;
      const [middle, before] = [Math.floor((app.info.begin + app.info.end) / 2), app.scroll];
      app.scroll = 0;
      app.view.set({ begin: middle, end: middle + 5e6 });
      return before;
    });
    await settled(page);
    const slice = await sliceOf(page, "cpu", [2]);
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForFunction(() => (window.tompion?.app.selected?.detail ?? null) !== null);
    const begin = await page.evaluate(() => window.tompion!.app.selected!.begin);
    await page.locator("#tab-events").click();
    const chosen = page.locator(".table-view .event-row.chosen");
    await chosen.waitFor();
    const seconds = Number((await chosen.locator("span").first().textContent())!.replace(/[^0-9.]/g, ""));
    expect(Math.round(seconds * 1e9)).toBeGreaterThanOrEqual(begin);
    expect(await chosen.locator("span").nth(3).textContent()).toMatch(/^sched_wak/);
    await filterEvents(page, "");
    await page.evaluate((before) => {
      const { app } = window.tompion!;
      app.scroll = before;
      app.view.set(app.view.whole());
    }, scroll);
    await settled(page);
    await page.locator("#page-events .rows").focus();
    await page.keyboard.press("Home");
    await page.locator('.table-view .event-row[data-row="0"]').click();
    await page.waitForFunction(() => window.tompion?.app.cursor !== null);
  });

  it("measures an area", async () => {
    await area(page, [420, 150], [900, 300]);
    await page.locator("#tab-selection").click();
    await page.waitForSelector('#page-selection[data-ready="true"] .card');
    expect(await page.textContent("#page-selection")).toContain("Threads");
  });

  it("saves an area as a table, as a picture, and as a trace", async () => {
    await page.evaluate(() => {
      const { app } = window.tompion!;
      const { begin, end } = app.info;
      app.setArea({ begin: begin + Math.floor((end - begin) / 4), end: begin + Math.floor((end - begin) / 3), all: true, tracks: [] });
    });
    await page.locator("#tab-selection").click();
    const tools = page.locator('#page-selection[data-ready="true"] .tools');
    await tools.waitFor();
    const saved = async (name: string): Promise<Buffer> => {
      const [download] = await Promise.all([page.waitForEvent("download"), tools.getByRole("button", { name, exact: true }).click()]);
      return readFileSync(await download.path());
    };
    const events = await page.evaluate(async () => {
      const { begin, end } = window.tompion!.app.area!;
      return ((await (await fetch(`api/events?from=${begin}&to=${end}&count=0`)).json()) as { total: number }).total;
    });
    expect(events).toBeGreaterThan(100);
    const lines = (await saved("CSV")).toString().trimEnd().split("\n");
    expect(lines[0]).toContain("time");
    expect(lines.length).toBe(events + 1);
    await page.waitForFunction(() => /^table saved: [\d.]+ [kM]B$/.test(window.tompion?.app.message ?? ""));
    expect((await saved("PNG")).subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
    await tools.getByRole("button", { name: "Save as trace", exact: true }).click();
    await page.waitForFunction(() => window.tompion?.app.message.startsWith("trace saved in "));
    const message = await page.evaluate(() => window.tompion!.app.message);
    expect(message).toMatch(/ \([\d\s]+ events, [\d.]+ [kM]B\)$/);
    const path = message.slice("trace saved in ".length).replace(/ \([^)]*\)$/, "");
    expect(path).toBe(join(server.folder, "many-threads-part"));
    expect(readdirSync(path, { recursive: true }).some((name) => String(name).endsWith("metadata"))).toBe(true);
    await page.evaluate(() => window.tompion?.app.setArea(null));
  });

  it("shows the events of an area's tracks in the table, in the counts and in exports", async () => {
    // The thread that ran longest, in a tenth of the time.
    const thread = await page.evaluate(() => {
      const { app } = window.tompion!;
      const threads = [...app.tracks.all.values()].filter((track) => track.kind === "thread" && track.tid !== 0);
      const [first] = threads.sort((a, b) => (b.busy ?? 0) - (a.busy ?? 0));
      const { begin, end } = app.info;
      app.setArea({ begin: begin + Math.floor((end - begin) / 4), end: begin + Math.floor((end - begin) / 3), all: false, tracks: [first!.id] });
      return first!.tid;
    });
    await page.locator("#tab-events").click();
    const status = page.locator("#page-events .table-head .muted");
    await expect.poll(() => status.textContent(), { timeout: 60_000 }).toMatch(/^\d[\d\s]* events of 1 track in the area$/);
    const count = Number((await status.textContent())!.replace(/ events.*/, "").replace(/\s/g, ""));
    expect(count).toBeGreaterThan(10);
    const all = await page.evaluate(async () => {
      const { begin, end } = window.tompion!.app.area!;
      return ((await (await fetch(`api/events?from=${begin}&to=${end}&count=0`)).json()) as { total: number }).total;
    });
    expect(count).toBeLessThan(all);
    const texts = await page.locator(".table-view .event-row").evaluateAll((rows) => rows.map((row) => [...row.children].slice(2).map((cell) => cell.textContent).join(" ")));
    for (const text of texts) expect(text).toMatch(new RegExp(`\\b${thread}\\b`));
    await page.locator("#tab-selection").click();
    await expect.poll(async () => (await page.locator(".events-card h3").textContent())?.replace(/\D/g, ""), { timeout: 60_000 }).toBe(String(count));
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator('#page-selection .tools button:text-is("CSV")').click()]);
    const lines = readFileSync(await download.path()).toString().trimEnd().split("\n");
    expect(lines.length).toBe(count + 1);
    await page.evaluate(() => window.tompion?.app.setArea(null));
  });

  it("goes from slice to slice", async () => {
    await page.keyboard.press("Escape");
    await page.keyboard.press("Home");
    await page.evaluate(() => {
      window.tompion!.app.scroll = 0;
      window.tompion!.app.draw();
    });
    await settled(page);
    const slice = await sliceOf(page, "cpu", [1, 2]);
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForSelector('#page-detail[data-ready="true"] .facts');
    const begin = await page.evaluate(() => window.tompion?.app.selected?.begin ?? 0);
    await page.keyboard.press(".");
    await page.waitForFunction((before) => (window.tompion?.app.selected?.begin ?? 0) > before, begin);
  });

  it("had no errors", () => expect(errors).toEqual([]));
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
  it("is reported", async () => {
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

/** Paths of a trace's streams below its folder. */
function streams(trace: string): string[] {
  const names = readdirSync(trace, { recursive: true }).map(String);
  return names.filter((name) => /channel[^/]*_\d+$/.test(name) && !name.includes("index/")).sort();
}

describe.skipIf(!available("many-threads"))("a trace that grows", () => {
  it("is shown as it grows, and keeps the selection", async () => {
    const folder = mkdtempSync(join(tmpdir(), "tompion-page-"));
    const trace = join(folder, "many-threads");
    cpSync(join(CORPUS, "many-threads"), trace, { recursive: true });
    const last = streams(trace).at(-1)!;
    rmSync(join(trace, last));
    writeFileSync(join(trace, "tompion.json"), '{"schema":1,"state":"recording"}');
    const server = await viewIn(folder, "many-threads");
    try {
      const page = await open(browser, server.url);
      expect(await page.textContent("#trace-facts")).toContain("growing");
      const before = await page.evaluate(() => window.tompion!.app.info.events);
      const slice = await sliceOf(page, "cpu", [1, 2]);
      await page.mouse.click(slice!.x, slice!.y);
      await page.waitForSelector('#page-detail[data-ready="true"] .facts');
      const track = () => page.evaluate(() => {
        const { app } = window.tompion!;
        return app.tracks.all.get(app.tracks.laneTrack.get(app.selected?.lane ?? -1) ?? -1)?.title;
      });
      const chosen = await track();
      cpSync(join(CORPUS, "many-threads", last), join(trace, last));
      await page.waitForFunction((events) => window.tompion!.app.info.events > events, before);
      await settled(page);
      expect(await track()).toBe(chosen);
      expect(await sliceOf(page, "cpu", [1, 2])).not.toBeNull();
      writeFileSync(join(trace, "tompion.json"), '{"schema":1,"state":"complete"}');
      await page.waitForFunction(() => !document.getElementById("trace-facts")?.textContent?.includes("growing"));
      await page.close();
    } finally {
      server.stop();
    }
  });
});

describe.skipIf(!available("ros2"))("ros2", () => {
  it("opens, and refuses requests without token", async () => {
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
