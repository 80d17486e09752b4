// A hundred thousand threads: requests, drawing and memory depend on what is visible, not on the
// size of the trace.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { BINARY, launch, open, settled, viewIn, type Viewing } from "./server";

const GENERATE = resolve(import.meta.dirname, "../../../benches/view/generate.mjs");
/** Number of events with which each thread runs once. */
const [EVENTS, THREADS] = [404_000, 100_800];
/** Promised limit in megabytes. */
const MEMORY = 500;

describe.skipIf(!existsSync(BINARY))("a hundred thousand threads", () => {
  let [browser, server, page]: [Browser, Viewing, Page] = [] as never;
  const errors: string[] = [];
  /** Requested lanes, by request. */
  let asked: string[][] = [];
  beforeAll(async () => {
    const folder = mkdtempSync(join(tmpdir(), "tompion-page-"));
    execFileSync(process.execPath, [GENERATE, String(EVENTS), join(folder, "crowd"), String(THREADS)]);
    browser = await launch();
    server = await viewIn(folder, "crowd");
    page = await open(browser, server.url, errors);
    page.on("request", (request) => {
      const ids = new URL(request.url()).searchParams.get("ids");
      if (request.url().includes("/api/lanes") && ids !== null) asked.push(ids.split(","));
    });
  });
  afterAll(async () => {
    await browser?.close();
    server?.stop();
  });

  /** Memory of the page's process in megabytes. */
  async function memory(): Promise<number> {
    const session = await browser.newBrowserCDPSession();
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    const sizes = processInfo
      .filter(({ type }) => type === "renderer")
      .map(({ id }) => Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, "utf8"))?.[1]) / 1024);
    return Math.max(...sizes);
  }

  it("opens with elements for visible tracks only", async () => {
    expect(await page.evaluate(() => window.tompion!.app.tracks.all.size)).toBeGreaterThan(100_000);
    expect(await page.locator("*").count()).toBeLessThan(2000);
  });

  it("finds each thread by its number", async () => {
    await page.keyboard.press("t");
    await page.keyboard.type("99999");
    await page.waitForFunction(() => document.querySelector("#finder-list li.chosen")?.textContent?.includes("99999") === true);
    expect(await page.locator("#finder-list li").count()).toBeLessThan(100);
    await page.keyboard.press("Enter");
    await settled(page);
    expect(await page.locator("#names .track.current").getAttribute("aria-label")).toContain("99999");
    expect(await page.locator("*").count()).toBeLessThan(2000);
  });

  it("scrolls to the end and requests the lanes there only", async () => {
    asked = [];
    await page.mouse.move(100, 300);
    await page.mouse.wheel(0, 1e9);
    await settled(page);
    const [bottom, height] = await page.evaluate(() => {
      const { app, timeline } = window.tompion!;
      return [app.scroll + timeline.height - timeline.divider, app.tracks.height] as const;
    });
    expect(bottom).toBeCloseTo(height, 0);
    expect(asked.length).toBeGreaterThan(0);
    expect(new Set(asked.flat()).size).toBeLessThan(200);
  });

  it("keeps the page's memory within the limit", async () => {
    for (let place = 0; place < 20; place++) {
      await page.evaluate((share) => {
        const { app } = window.tompion!;
        app.scroll = share * app.tracks.height;
        app.draw();
      }, place / 20);
      await settled(page);
    }
    expect(await memory()).toBeLessThan(MEMORY);
    expect(await page.locator("*").count()).toBeLessThan(2000);
    expect(errors).toEqual([]);
  });
});
