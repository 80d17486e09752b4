// The page on a server that fails at times, and next to other pages that write notes.

import { afterEach, describe, expect, it } from "vitest";
import type { Page, Route } from "playwright-core";
import type { Note, TraceOverview, NoteList } from "../../src/data/wire";
import { DEADLINE, onMadeUpData, settled } from "./server";

describe("the page on a server that fails", () => {
  const made = onMadeUpData();
  let page: Page | undefined;
  let fails = false;

  afterEach(async () => {
    await page?.close();
    fails = false;
  });

  const refuse = (route: Route): Promise<void> => route.fulfill({ status: 500, json: { error: "there is no room" } });

  async function fresh(): Promise<Page> {
    page = await made.browser.newPage({ viewport: { width: 1280, height: 720 } });
    page.setDefaultTimeout(DEADLINE);
    return page;
  }

  async function opened(page: Page): Promise<void> {
    await page.goto(made.server.url);
    await page.waitForSelector('html[data-loaded="true"]');
  }

  it("requests rows again after a pause", async () => {
    const page = await fresh();
    let asked = 0;
    await page.route(/\/api\/events/, (route) => {
      asked += 1;
      return fails ? refuse(route) : route.continue();
    });
    await opened(page);
    await page.click("#tab-events");
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("a = 0,"));
    [fails, asked] = [true, 0];
    await page.locator("#page-events .rows").focus();
    await page.keyboard.press("End");
    await page.waitForFunction(() => document.querySelector("#page-events .table-head")?.textContent?.includes("there is no room"));
    // Redraws do not request it earlier.
    const before = asked;
    await page.evaluate(() => {
      for (let time = 0; time < 200; time++) window.tompion!.app.notify("clock");
    });
    expect(asked - before).toBeLessThan(3);
    fails = false;
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("a = 99999999"));
    expect(await page.textContent("#page-events .table-head")).not.toContain("there is no room");
  });

  it("says what is missing, and draws it later", async () => {
    const page = await fresh();
    fails = true;
    const had = new Set<string | null>();
    await page.context().route(/\/api\/lanes/, (route) => {
      if (fails) return refuse(route);
      had.add(new URL(route.request().url()).searchParams.get("ids"));
      return route.continue();
    });
    await opened(page);
    await page.waitForFunction(() => document.querySelector("#message")?.textContent?.includes("there is no room"));
    expect(await page.evaluate(() => [...window.tompion!.app.tiles.failures()].length)).toBeGreaterThan(0);
    expect(await page.evaluate(() => window.tompion!.settled())).toBe(false);
    fails = false;
    await settled(page);
    await page.waitForFunction(() => document.querySelector("#message")?.textContent === "");
    expect(await page.evaluate(() => [...window.tompion!.app.tiles.failures()].length)).toBe(0);
    // So does the overview, which has the channel only.
    await expect.poll(() => had.has("950"), { timeout: DEADLINE }).toBe(true);
  });

  it("recovers when the server does, however often it failed", async () => {
    const page = await fresh();
    let failed = 0;
    await page.route("**/api/trace", async (route) => {
      if (fails) {
        failed += 1;
        return route.abort();
      }
      const response = await route.fetch();
      return route.fulfill({ response, json: { ...((await response.json()) as TraceOverview), progress: failed > 0 ? 1 : 0.5 } });
    });
    await opened(page);
    fails = true;
    await page.waitForFunction(() => document.querySelector("#message")?.textContent?.includes("the server has ended"));
    await expect.poll(() => failed, { timeout: DEADLINE }).toBeGreaterThan(6);
    fails = false;
    await page.waitForFunction(() => window.tompion!.app.info.progress === 1);
    expect(await page.textContent("#message")).toBe("");
  });

  it("cancels searches, and shows errors of a filter", async () => {
    const page = await fresh();
    let asked = 0;
    await page.route(/\/api\/search/, (route) => {
      asked += 1;
      return route.continue();
    });
    await opened(page);
    const state = (busy: boolean): Promise<unknown> => page.waitForFunction((busy) => (document.querySelector<HTMLElement>("#search-status")?.dataset["state"] === "busy") === busy, busy);
    for (const end of ["Escape", "x"]) {
      await page.fill("#search", "endless");
      await page.press("#search", "Enter");
      await state(true);
      await page.press("#search", end);
      await state(false);
      const before = asked;
      await page.evaluate(async () => {
        for (let time = 0; time < 10; time++) await fetch("api/trace");
      });
      expect(asked).toBe(before);
      expect(await page.textContent("#search-status")).toBe("");
    }
    await page.fill("#search", "a &&& b");
    await page.press("#search", "Enter");
    await page.waitForSelector("#search-status.bad");
    expect(await page.textContent("#search-status")).toContain("expected a condition");
    await page.fill("#search", "none");
    await page.press("#search", "Enter");
    await page.waitForFunction(() => document.querySelector("#search-status:not(.bad)")?.textContent === "no hit");
  });

  it("continues from the last hit after the search was left", async () => {
    const page = await fresh();
    await opened(page);
    await page.fill("#search", "switch");
    const cursor = (): Promise<number | null> => page.evaluate(() => window.tompion!.app.cursor);
    let last = -1;
    for (let hit = 0; hit < 3; hit++) {
      await page.press("#search", "Enter");
      await page.waitForFunction((before) => (window.tompion!.app.cursor ?? -1) > before, last);
      last = (await cursor())!;
    }
    await page.press("#search", "Escape");
    await page.keyboard.press("n");
    await page.waitForFunction((before) => window.tompion!.app.cursor !== before, last);
    expect(await cursor()).toBe(last + 5_000_000);
  });

  const kept = async (): Promise<NoteList> => (await (await fetch(`${made.server.url}api/notes`)).json()) as NoteList;
  const keep = async (notes: Note[]): Promise<void> => {
    const { version } = await kept();
    await fetch(`${made.server.url}api/notes`, { method: "POST", body: JSON.stringify({ version, notes }) });
  };
  const texts = async (): Promise<string[]> => (await kept()).notes.map(({ text }) => text);

  it("keeps notes that another page wrote meanwhile", async () => {
    await keep([{ time: 1, text: "of before" }]);
    const page = await fresh();
    await opened(page);
    await page.waitForFunction(() => window.tompion!.app.notes.length === 1);
    await keep([{ time: 1, text: "of before" }, { time: 2, text: "theirs" }]);
    await page.keyboard.press("m");
    await page.fill("#page-notes .words input >> nth=-1", "mine");
    await page.keyboard.press("Enter");
    await expect.poll(texts, { timeout: DEADLINE }).toEqual(["of before", "theirs", "mine"]);
    expect(await page.evaluate(() => window.tompion!.app.notes.length)).toBe(3);
  });

  it("writes no notes before it has read the saved ones", async () => {
    await keep([{ time: 1, text: "of before" }]);
    const page = await fresh();
    fails = true;
    await page.route(/\/api\/notes/, (route) => (fails && route.request().method() === "GET" ? refuse(route) : route.continue()));
    await opened(page);
    await page.waitForFunction(() => document.querySelector("#message")?.textContent?.includes("notes can't be read"));
    await page.keyboard.press("m");
    await page.waitForFunction(() => document.querySelector("#message")?.textContent?.includes("notes were not saved"));
    expect(await texts()).toEqual(["of before"]);
    fails = false;
    await page.fill("#page-notes .words input >> nth=-1", "mine");
    await page.keyboard.press("Enter");
    await expect.poll(texts, { timeout: DEADLINE }).toEqual(["of before", "mine"]);
  });
});
