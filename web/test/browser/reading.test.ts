// The page on a trace that is still being read: what becomes known later is shown as if it had been
// known before.

import { afterEach, describe, expect, it } from "vitest";
import type { Page, Route } from "playwright-core";
import type { TraceOverview, TrackInfo } from "../../src/data/wire";
import { DEADLINE, onMadeUpData, settled } from "./server";

describe("the page on a trace that is being read", () => {
  const made = onMadeUpData();
  let page: Page | undefined;
  /** Whether everything is known of the trace, or only its channels. */
  let isWhole = false;

  afterEach(async () => {
    await page?.close();
    isWhole = false;
  });

  /** Opens the page on a server in this state. */
  async function openOn(trace: (info: TraceOverview) => Promise<TraceOverview> | TraceOverview): Promise<Page> {
    const opened = await made.browser.newPage({ viewport: { width: 1280, height: 720 } });
    opened.setDefaultTimeout(DEADLINE);
    const answer = async <Answer>(route: Route, change: (answer: Answer) => Promise<Answer> | Answer): Promise<void> => {
      const response = await route.fetch();
      await route.fulfill({ response, json: await change((await response.json()) as Answer) });
    };
    await opened.route("**/api/trace", (route) => answer<TraceOverview>(route, trace));
    await opened.route(/\/api\/tracks/, (route) => {
      const known = isWhole;
      return answer<{ tracks: TrackInfo[] }>(route, ({ tracks }) => ({
        tracks: tracks.filter(({ kind }) => known || kind === "channel"),
      }));
    });
    await opened.goto(made.server.url);
    await opened.waitForSelector('html[data-loaded="true"]');
    page = opened;
    return opened;
  }

  function kindsInSight(page: Page): Promise<string[]> {
    return page.evaluate(() => {
      const rows = window.tompion!.timeline.placed.map(({ row }) => row.slots.map((slot) => slot.lane.kind));
      return [...new Set(rows.flat())].sort();
    });
  }

  it("expands CPUs that become known later", async () => {
    const page = await openOn((info) => ({ ...info, progress: isWhole ? 1 : 0.1, glimpses: isWhole ? 1 : 0 }));
    expect(await kindsInSight(page)).toEqual(["density"]);
    isWhole = true;
    await settled(page);
    expect(await kindsInSight(page)).toContain("cpu");
    expect(await kindsInSight(page)).toContain("thread");
  });

  it("measures the part that is read, says so, and measures again at the end", async () => {
    let asked = 0;
    const page = await openOn((info) => ({ ...info, progress: isWhole ? 1 : 0.4 }));
    await page.route(/\/api\/select/, async (route) => {
      asked += 1;
      const [response, part] = [await route.fetch(), !isWhole];
      await route.fulfill({ response, json: { ...(await response.json()), known: part ? 160e6 : 2 ** 60, events: part ? [["some", 7]] : [["all", 42]] } });
    });
    await page.evaluate(() => window.tompion!.app.setArea({ begin: 0, end: 400e6, all: true, tracks: [] }));
    await page.waitForSelector('#page-selection[data-ready="true"] .unread');
    expect(await page.textContent("#page-selection .unread")).toContain("only the first 40 % of it is read so far");
    expect(await page.textContent("#page-selection")).toContain("Events: 7");
    isWhole = true;
    await page.waitForFunction(() => document.querySelector("#page-selection")?.textContent?.includes("Events: 42"));
    expect(await page.locator("#page-selection .unread").count()).toBe(0);
    expect(asked).toBe(2);
  });

  it("draws the flame graph once while the trace is read", async () => {
    let [asked, progress] = [0, 0.1];
    const page = await openOn((info) => ({ ...info, progress: isWhole ? 1 : (progress += 0.001) }));
    await page.route(/\/api\/flame/, async (route) => {
      asked += 1;
      const [response, known] = [await route.fetch(), isWhole ? 2 ** 60 : 40e6];
      await route.fulfill({ response, json: { ...(await response.json()), known } });
    });
    await page.click("#tab-flame");
    await page.waitForSelector('#page-flame[data-ready="true"] canvas');
    expect(await page.textContent("#page-flame .flame-head")).toContain("only the first 10 % of the visible area is read so far");
    const before = progress;
    // The graph is requested a quarter of a second after a frame.
    await page.waitForFunction(
      (least) => {
        window.tompion!.app.draw();
        return window.tompion!.app.info.progress > least;
      },
      before + 0.004,
      { polling: 400 },
    );
    expect(asked).toBe(1);
    isWhole = true;
    await page.waitForFunction(() => !document.querySelector(".flame-head")?.textContent?.includes("only the first"));
    expect(asked).toBe(2);
  });

  it("shows events that became known after the table was opened", async () => {
    let events = 50;
    const page = await openOn((info) => ({ ...info, progress: isWhole ? 1 : 0.5, events }));
    await page.route(/\/api\/events/, (route) => {
      const query = new URL(route.request().url()).searchParams;
      const [row, count, total] = [Number(query.get("row")), Number(query.get("count")), events];
      const rows = Array.from({ length: Math.max(0, Math.min(count, total - row)) }, (_, at) => ({ row: row + at, time: row + at, name: "event", text: `number ${row + at} of ${total}` }));
      return route.fulfill({ json: { rows, total } });
    });
    const status = () => page.textContent("#page-events .table-head");
    await page.click("#tab-events");
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("number 0 of 50"));
    expect(await status()).toContain("50 events, 50 % read");
    events = 130;
    await page.waitForFunction(() => document.querySelector("#page-events .table-head")?.textContent?.includes("130 events"));
    await page.locator("#page-events .rows").focus();
    await page.keyboard.press("End");
    // The first page had half of its rows. The second one is new.
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("number 129 of 130"));
    [events, isWhole] = [140, true];
    await page.waitForFunction(() => document.querySelector("#page-events .table-head")?.textContent?.includes("140 events"));
    await page.keyboard.press("End");
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("number 139 of 140"));
    expect(await status()).not.toContain("% read");
  });

  it("has no outdated tracks once everything is known", async () => {
    const page = await openOn(async (info) => {
      // A client that requests both at once gets the older tracks.
      await new Promise((done) => setTimeout(done, 300));
      isWhole = true;
      return { ...info, progress: 1 };
    });
    await settled(page);
    expect(await kindsInSight(page)).toContain("cpu");
  });
});
