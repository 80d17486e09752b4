// The page on made-up data: HTML in names, losses, two traces, a hundred million rows.

import { beforeAll, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { area, sliceOf, onMadeUpData, open, settled, span } from "./server";

const PREEMPTED = 4;

describe("the page on made-up data", () => {
  const made = onMadeUpData();
  let [browser, page]: [Browser, Page] = [] as never;
  beforeAll(() => ({ browser, page } = made));

  it("shows names as text, even if they are HTML", async () => {
    expect(await page.textContent("#trace-name")).toBe("made-up <b>trace</b>");
    expect(await page.locator("#trace-name b").count()).toBe(0);
    await page.keyboard.press("3");
    await page.waitForSelector(".table-view .event-row");
    expect(await page.locator(".table-view i, .table-view script").count()).toBe(0);
    expect(await page.textContent(".table-view")).toContain("<i>html</i>");
  });

  it("shows losses", async () => {
    expect(await page.textContent("#warnings")).toContain("40 events lost");
    expect(await page.textContent("#warnings")).toContain("7 overwritten");
  });

  it("scrolls through a hundred million rows", async () => {
    await page.locator("#page-events .rows").focus();
    await page.keyboard.press("End");
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("a = 99999999"));
    await page.keyboard.press("Home");
    await page.waitForFunction(() => document.querySelector(".table-view")?.textContent?.includes("a = 0,"));
  });

  it("shows errors of a filter", async () => {
    await page.fill("#page-events .filter:not(.glob)", "a &&&");
    await page.waitForSelector("#page-events .filter.wrong");
    expect(await page.textContent("#page-events .table-head")).toContain("expected a condition");
    await page.fill("#page-events .filter:not(.glob)", "");
    await page.waitForSelector("#page-events .filter:not(.wrong):not(.glob)");
    // The focus leaves the table, which handles some keys itself.
    await page.click("#trace-name");
  });

  it("zooms by wheel and keys, and undoes it", async () => {
    const whole = await span(page);
    await page.mouse.move(700, 200);
    await page.mouse.wheel(0, -600);
    await page.waitForFunction((before) => (window.tompion?.app.view.span ?? before) < before * 0.9, whole);
    await settled(page);
    const zoomed = await span(page);
    await page.keyboard.press("w");
    await page.waitForFunction((before) => (window.tompion?.app.view.span ?? before) < before, zoomed);
    await page.keyboard.press("Home");
    await page.waitForFunction((before) => Math.abs((window.tompion?.app.view.span ?? 0) / before - 1) < 1e-6, whole);
    await page.keyboard.press("Backspace");
    await page.waitForFunction((before) => (window.tompion?.app.view.span ?? before) < before * 0.95, whole);
  });

  it("says why a thread was late, with a link to the thread on its CPU", async () => {
    await page.evaluate(() => window.tompion?.app.view.set({ begin: 170e6, end: 190e6 }));
    await settled(page);
    const slice = await sliceOf(page, "thread", [PREEMPTED]);
    expect(slice).not.toBeNull();
    // The event table stays open.
    await page.keyboard.press("1");
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForSelector('#page-detail[data-ready="true"] .answer');
    expect(await page.textContent("#page-detail .answer")).toContain("Preempted by irq/9-acpi");
    // The process of a kernel thread is unknown.
    expect(await page.textContent("#page-detail .facts")).not.toContain("null");
    await page.click('#page-detail [data-role="culprit"]');
    await page.waitForSelector('#page-detail[data-lane="1010"]');
  });

  it("measures an area, and goes from a histogram's bar to the longest slice", async () => {
    await area(page, [400, 150], [900, 400]);
    await page.waitForSelector('#page-selection[data-ready="true"] .bar:enabled');
    expect(await page.textContent("#page-selection")).toContain("Waited longest for a CPU");
    await page.locator("#page-selection .bar:enabled").first().click();
    await page.waitForSelector('#page-detail[data-lane="1002"]');
    const view = await page.evaluate(() => window.tompion!.app.view.target);
    expect(view.begin).toBeLessThan(50e6);
    expect(view.end).toBeGreaterThan(56e6);
  });

  it("says how many tracks a table covers, and counts their events", async () => {
    await area(page, [400, 150], [900, 400]);
    await page.locator("#tab-selection").click();
    await page.waitForFunction(() => document.querySelector(".events-card h3")?.textContent?.replace(/\D/g, "") === "4723");
    const tracks = (await page.textContent(".selection-head h2 span"))!;
    expect(tracks).toMatch(/^\d+ tracks$/);
    await page.locator("#tab-events").click();
    await page.waitForFunction((of) => document.querySelector("#page-events .muted")?.textContent?.replace(/(?<=\d)\s(?=\d)/g, "") === `1000000 events of ${of} in the area`, tracks);
    await page.evaluate(() => window.tompion?.app.setArea(null));
    await page.waitForFunction(() => document.querySelector("#page-events .muted")?.textContent?.replace(/(?<=\d)\s(?=\d)/g, "") === "100000000 events");
    await page.locator("#tab-selection").click();
  });

  it("lists all threads, and builds the visible rows", async () => {
    await area(page, [400, 150], [900, 400]);
    await page.locator("#tab-selection").click();
    const card = page.locator("#page-selection .card", { hasText: "Threads:" });
    await card.waitFor();
    expect((await card.locator("h3").textContent())?.replaceAll("\u202f", " ")).toBe("Threads: 2 500");
    const rows = card.locator("tbody tr:not(.space)");
    expect(await rows.count()).toBeLessThan(60);
    // The server sent the first thousand. Scrolling to the end requests the others.
    await card.locator(".scrolls").evaluate((list) => list.scrollTo(0, list.scrollHeight));
    await page.waitForFunction(() => document.querySelector("#page-selection")?.textContent?.includes("worker 2499"));
    expect(await rows.count()).toBeLessThan(60);
    expect(await card.locator(".scrolls").evaluate((list) => list.scrollTop + list.clientHeight >= list.scrollHeight - 1)).toBe(true);
    await page.keyboard.press("Escape");
  });

  it("finds a track by letters, and pins it", async () => {
    await page.keyboard.press("t");
    await page.fill("#finder-input", "cmpstr");
    await page.waitForSelector("#finder-list li.chosen");
    await page.keyboard.press("Shift+Enter");
    await page.waitForSelector(".track.pinned");
    expect(await page.textContent(".track.pinned .name")).toBe("compositor");
  });

  it("keeps many pinned names off the rows below", async () => {
    const before = await page.evaluate(() => {
      const { app } = window.tompion!;
      const pinned = [...app.tracks.pinned];
      app.tracks.pinned = [...app.tracks.all.values()].filter(({ kind }) => kind === "thread").map(({ id }) => id);
      app.tracks.layout();
      app.notify("tracks");
      return pinned;
    });
    await settled(page);
    const [last, divider] = await page.evaluate(() => {
      const rows = [...document.querySelectorAll<HTMLElement>(".track.pinned:not([hidden])")].map((row) => row.getBoundingClientRect().bottom);
      return [Math.max(...rows) - document.getElementById("names")!.getBoundingClientRect().top, window.tompion!.timeline.divider];
    });
    expect(last).toBeLessThanOrEqual(divider + 1);
    await page.evaluate((pinned) => {
      const { app } = window.tompion!;
      app.tracks.pinned = pinned;
      app.tracks.layout();
      app.notify("tracks");
    }, before);
  });

  it("saves notes", async () => {
    await page.keyboard.press("m");
    await page.waitForSelector("#page-notes .notes input");
    await page.keyboard.type("late here");
    await page.keyboard.press("Tab");
    await page.waitForFunction(async () => (await (await fetch("api/notes")).text()).includes("late here"));
  });

  it("draws the flame graph", async () => {
    await page.locator("#tab-flame").click();
    await page.waitForSelector('#page-flame[data-ready="true"] canvas');
    await page.mouse.move(600, 550);
    expect(await page.textContent("#page-flame .flame-head")).not.toBe("");
  });

  it("shifts a trace by a typed offset", async () => {
    await page.click("#traces-button");
    await page.fill('.trace-row[data-trace="1"] input', "2.5");
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => window.tompion?.app.info.traces[1]?.offset === 2_500_000);
    await page.keyboard.press("Escape");
  });

  it("keeps the focus in an offset's field, and shows an error as long as there is one", async () => {
    await page.click("#traces-button");
    const input = page.locator('.trace-row[data-trace="1"] input');
    const status = page.locator("#traces-status");
    for (const typed of ["abc", "1e99"]) {
      await input.fill(typed);
      await page.keyboard.press("Enter");
      await status.waitFor();
      expect(await status.textContent()).toContain(`found “${typed}”`);
    }
    await input.fill("2");
    await page.keyboard.press("Enter");
    await status.waitFor({ state: "hidden" });
    expect(await page.evaluate(() => window.tompion?.app.info.traces[1]?.offset)).toBe(2_000_000);
    expect(await input.evaluate((element) => document.activeElement === element && !element.hasAttribute("aria-invalid"))).toBe(true);
    await page.keyboard.press("Escape");
  });

  it("shows a trace that is shifted before the begin of the others", async () => {
    await page.keyboard.press("Home");
    await page.click("#traces-button");
    await page.fill('.trace-row[data-trace="1"] input', "-600");
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => window.tompion?.app.info.traces[1]?.offset === -600_000_000);
    await page.keyboard.press("Escape");
    // The new limits apply at once.
    const { begin, end } = await page.evaluate(() => window.tompion!.app.view.limits);
    expect([begin, end]).toEqual([-600e6, 400e6]);
    await page.keyboard.press("Home");
    await page.waitForFunction(() => (window.tompion?.app.view.span ?? 0) > 1e9);
    await page.evaluate(() => window.tompion?.app.view.set({ begin: -450e6, end: -400e6 }));
    await settled(page);
    const slice = await sliceOf(page, "thread", [2]);
    expect(slice, "slices of threads before time 0").not.toBeNull();
    await page.mouse.move(slice!.x, slice!.y);
    await page.waitForFunction(() => window.tompion?.app.hover?.slice?.style === 2 && window.tompion.app.hover.slice.end <= 0);
  });

  it("shifts a trace at the right end by its bar", async () => {
    await page.click("#traces-button");
    const lane = page.locator('.trace-row[data-trace="0"] .offset-lane');
    const place = await lane.boundingBox();
    // The last trace, which is short compared to the others.
    await page.evaluate(() => {
      const info = window.tompion!.app.info;
      Object.assign(info.traces[0]!, { begin: info.end - 1, end: info.end });
    });
    await page.keyboard.press("Escape");
    await page.click("#traces-button");
    await page.mouse.move(place!.x + place!.width - 4, place!.y + place!.height / 2);
    await page.mouse.down();
    await page.mouse.move(place!.x + place!.width * 0.9, place!.y + place!.height / 2, { steps: 3 });
    await page.mouse.up();
    await page.waitForFunction(() => (window.tompion?.app.info.traces[0]?.offset ?? 0) < -50_000_000);
    for (const trace of ["0", "1"]) {
      await page.fill(`.trace-row[data-trace="${trace}"] input`, "0");
      await page.keyboard.press("Tab");
      await page.waitForFunction((at) => window.tompion?.app.info.traces[Number(at)]?.offset === 0, trace);
    }
    await page.keyboard.press("Escape");
  });

  it("shows its keys, its legend and the dark theme", async () => {
    await page.keyboard.press("?");
    await page.waitForSelector("#help[open] kbd");
    await page.keyboard.press("Escape");
    await page.keyboard.press("l");
    await page.waitForSelector("#legend[open] .swatch");
    await page.keyboard.press("Escape");
    const before = await page.getAttribute("html", "data-theme");
    await page.keyboard.press("Shift+T");
    await page.waitForFunction((theme) => document.documentElement.dataset["theme"] !== theme, before);
  });

  it("restores a view from its link", async () => {
    await page.evaluate(() => window.tompion?.app.view.set({ begin: 1e6, end: 3e6 }));
    await page.waitForFunction(() => location.hash.includes("v=1000000,3000000"));
    const other = await open(browser, page.url(), made.errors);
    expect(await span(other)).toBe(2e6);
    expect(await other.textContent(".track.pinned .name")).toBe("compositor");
    await other.close();
  });

  it("had no errors", () => expect(made.errors).toEqual([]));
});
