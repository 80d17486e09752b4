// A trace that is opened a second time, with its saved index; and as a monitor's incident.

import { cpSync, existsSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { Style } from "../../src/data/wire";
import { BINARY, launch, open, ROOT, settled, type Viewing, viewIn } from "./server";

/** Everything that the page shows of a trace. */
async function contents(page: Page) {
  await settled(page);
  // Arrows are requested a moment after everything else.
  await page.waitForTimeout(1000);
  return page.evaluate(async () => {
    const { app } = window.tompion!;
    const { begin, end } = app.info;
    const statistics = (await (await fetch(`api/select?from=${begin}&to=${end}`)).json()) as unknown;
    const rows = [...document.querySelectorAll<HTMLElement>(".track:not([hidden])")].map((row) => [row.textContent, row.style.transform, row.title]);
    const header = ["trace-name", "trace-facts", "warnings"].map((id) => document.getElementById(id)!.textContent);
    return { header, rows, statistics, picture: document.querySelector<HTMLCanvasElement>("#lanes")!.toDataURL() };
  });
}

/** A late job of the controller, and the thread that compresses meanwhile. */
async function lateJob(page: Page) {
  return page.evaluate((late) => {
    const { app } = window.tompion!;
    const thread = (name: string) => [...app.tracks.all.values()].find((track) => track.kind === "thread" && track.name === name)!;
    const [controller, compressor] = [thread("controller"), thread("compressor")];
    const jobs: [number, number][] = [];
    for (const { id, kind } of controller.lanes) {
      if (kind !== "span") continue;
      app.tiles.cover(id, app.info.begin, app.info.end, app.view.span / 1000, ({ styles, times }) => {
        styles.forEach((style, at) => style === late && jobs.push([times[2 * at]!, times[2 * at + 1]!]));
      });
    }
    const [begin, end] = jobs[0]!;
    return { base: app.info.base, begin, end, controller: controller.tid!, compressor: compressor.tid! };
  }, Style.lateJob);
}

describe.skipIf(!existsSync(BINARY))("a trace that is opened again", () => {
  let [browser, server, first, job]: [Browser, Viewing, Awaited<ReturnType<typeof contents>>, Awaited<ReturnType<typeof lateJob>>] = [] as never;
  const folder = mkdtempSync(join(tmpdir(), "tompion-reopen-"));
  const errors: string[] = [];

  beforeAll(async () => {
    browser = await launch();
    cpSync(join(ROOT, "examples/late-trace"), join(folder, "late-trace"), { recursive: true });
    server = await viewIn(folder, "late-trace");
    const page = await open(browser, server.url, errors);
    [first, job] = [await contents(page), await lateJob(page)];
    await page.close();
    await server.end();
  });
  afterAll(async () => {
    await browser?.close();
    server?.stop();
  });

  it("shows the same as before", async () => {
    expect(readdirSync(join(folder, "late-trace"), { recursive: true }).map(String).some((name) => name.startsWith(".tompion-view"))).toBe(true);
    server = await viewIn(folder, "late-trace");
    const page = await open(browser, server.url, errors);
    const second = await contents(page);
    expect(first.rows.length).toBeGreaterThan(3);
    expect({ ...second, picture: "" }).toEqual({ ...first, picture: "" });
    expect(second.picture === first.picture, "the same pixels").toBe(true);
    await page.close();
    await server.end();
  });

  it("begins with the verdict, shares and links to threads if it is an incident's", async () => {
    const nanoseconds = (time: number): string => (BigInt(job.base) + BigInt(time)).toString();
    const causes = [
      { words: "compressor, higher priority", tid: job.compressor, percent: 62.5, time_ns: 0 },
      { words: "hardware interrupt", tid: 0, percent: 4.25, time_ns: 0 },
    ];
    const incident = { time_ns: 0, latency_ns: job.end - job.begin, limit_ns: 1_000_000, thread: { tid: job.controller, name: "controller" }, job: { name: "motor:control" }, verdict: { percent: 62.5, words: "preempted by higher priority" }, culprits: causes };
    // Numbers of 19 digits are exact only as text.
    const text = JSON.stringify(incident).replaceAll('"time_ns":0,"latency', `"time_ns":${nanoseconds(job.end)},"latency`).replaceAll('"time_ns":0', `"time_ns":${nanoseconds(job.begin)}`);
    writeFileSync(join(folder, "late-trace/incident.json"), text);
    server = await viewIn(folder, "late-trace");
    const page = await open(browser, server.url, errors);
    expect(await page.textContent(".chip.incident")).toContain("motor:control took");
    const box = page.locator("#page-selection .verdict");
    await box.waitFor();
    expect(await box.locator(".answer").textContent()).toBe("63 %: preempted by higher priority");
    expect(await box.locator("li").allTextContents()).toEqual(["62.5 %  compressor, higher priority", "4.3 %  hardware interrupt"]);
    // It is the first thing in the panel, and on the screen without scrolling.
    expect(await page.evaluate(() => document.getElementById("page-selection")!.firstElementChild!.className)).toBe("verdict");
    const place = (await box.boundingBox())!;
    expect(place.y + place.height).toBeLessThanOrEqual(720);
    const view = await page.evaluate(() => window.tompion!.app.view.target);
    expect([view.begin < job.begin, view.end > job.end]).toEqual([true, true]);
    // Only a thread has a link, which leads to what it did then.
    expect(await box.locator("li .link").count()).toBe(1);
    await box.locator("li .link").click();
    await page.waitForSelector('#page-detail[data-ready="true"]');
    const selected = await page.evaluate(() => {
      const { app } = window.tompion!;
      return app.tracks.all.get(app.tracks.laneTrack.get(app.selected!.lane)!)?.tid;
    });
    expect(selected).toBe(job.compressor);
    await page.screenshot({ path: process.env["TOMPION_SHOT"] ?? join(folder, "incident.png") });
    await page.close();
  });

  it("has no errors", () => expect(errors).toEqual([]));
});
