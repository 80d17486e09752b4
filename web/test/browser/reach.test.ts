// Accessibility: values of counters and channels, names that arrive later, links, keys alone,
// screen readers.

import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { area, sliceOf, onMadeUpData, open, settled } from "./server";

const PREEMPTED = 4;

/** Middle and edges of a visible lane. */
function placeOf(page: Page, lane: number): Promise<{ left: number; width: number; top: number; height: number }> {
  return page.evaluate((id) => {
    const { app, timeline } = window.tompion!;
    const track = app.tracks.laneTrack.get(id)!;
    app.reveal(track);
    timeline.paint();
    const stage = document.getElementById("stage")!.getBoundingClientRect();
    const { row, y } = timeline.placed.find((one) => one.row.track.id === track)!;
    const slot = row.slots.find((one) => one.lane.id === id)!;
    return { left: stage.left, width: timeline.width, top: stage.top + y + slot.y, height: slot.height };
  }, lane);
}

function text(page: Page, selector: string): Promise<string> {
  return page.locator(selector).innerText().then((found) => found.replaceAll("\u202f", " "));
}

describe("accessibility", () => {
  const made = onMadeUpData();
  let [browser, page]: [Browser, Page] = [] as never;
  const selected = () => page.evaluate(() => window.tompion!.app.selected);

  beforeAll(() => ({ browser, page } = made));
  beforeEach(async () => {
    await page.evaluate(() => {
      const { app } = window.tompion!;
      (document.activeElement as HTMLElement | null)?.blur();
      app.setArea(null);
      app.unselect();
      app.setTab("detail");
      app.cursor = null;
      app.scroll = 0;
      app.view.set({ begin: 0, end: 400e6 });
    });
    await settled(page);
  });

  it("a counter shows its value at the pointer, and by a click", async () => {
    const lane = await placeOf(page, 910);
    const [x, y] = [lane.left + lane.width / 2, lane.top + lane.height / 2];
    await page.evaluate(() => window.tompion!.app.view.set({ begin: 100e6, end: 102e6 }));
    await settled(page);
    await page.mouse.move(x, y);
    await page.waitForSelector("#tooltip:not([hidden])");
    expect(await text(page, "#tooltip")).toMatch(/db:rows\s+1 000 0\d\d rows \(1 000 000 … 1 000 010\)/);
    await page.mouse.click(x, y);
    await page.waitForSelector('#page-detail[data-ready="true"] .answer');
    expect(await text(page, "#page-detail h2")).toMatch(/db:rows\s+Counter/);
    expect(await text(page, "#page-detail .answer")).toMatch(/^1 000 0\d\d rows \(1 000 000 … 1 000 010\)$/);
    expect(await page.textContent("#page-detail")).not.toMatch(/unknown/i);
  });

  it("a counter's small changes fill its lane", async () => {
    const lane = await placeOf(page, 910);
    await settled(page);
    const heights = await page.evaluate(([top, height]) => {
      const canvas = document.getElementById("lanes") as HTMLCanvasElement;
      const from = top! - canvas.getBoundingClientRect().top;
      const { data, width } = canvas.getContext("2d")!.getImageData(200, Math.round(from), 600, Math.round(height!));
      const line = [0x2f, 0x6f, 0x9f];
      const rows = new Set<number>();
      const dark = [0x6b, 0xb0, 0xe0];
      for (let at = 0; at < data.length; at += 4) {
        const near = (wanted: number[]) => wanted.every((part, which) => Math.abs((data[at + which] ?? 0) - part) < 24);
        if (near(line) || near(dark)) rows.add(Math.floor(at / 4 / width));
      }
      return [...rows].sort((a, b) => a - b);
    }, [lane.top, lane.height]);
    expect((heights.at(-1) ?? 0) - (heights[0] ?? 0)).toBeGreaterThan(lane.height / 2);
  });

  it("a channel shows its event count, and its losses where it is red", async () => {
    const lane = await placeOf(page, 950);
    const x = lane.left + await page.evaluate(() => window.tompion!.timeline.xOf(123e6));
    const y = lane.top + lane.height / 2;
    await page.mouse.move(x, y);
    await page.waitForSelector("#tooltip:not([hidden])");
    expect(await text(page, "#tooltip")).toMatch(/kernel\/channel0\s+[\d ]+ events, [\d ]+ lost/);
    await page.mouse.click(x, y);
    await page.waitForSelector('#page-detail[data-ready="true"] .answer');
    expect(await text(page, "#page-detail .answer")).toBe("312 events, 40 lost here");
    expect(await page.textContent("#page-detail")).toContain("Events were discarded here");
  });

  it("a time without slices says so, without a slice's colour", async () => {
    await page.evaluate(async () => {
      const { app } = window.tompion!;
      const [lane] = [...app.tracks.laneKind].find(([, { kind }]) => kind === "interrupt")!;
      const first = (await (await fetch(`api/step?lane=${lane}&time=0&dir=1`)).json()) as { begin: number };
      await app.select(lane, first.begin - 1);
    });
    const detail = page.locator('#page-detail[data-ready="true"]');
    await detail.waitFor();
    expect(await detail.locator("h2").textContent()).toBe("No interrupt");
    expect(await detail.locator("h2 .swatch").count()).toBe(0);
    expect(await page.textContent("#announce")).toBe("No interrupt: None was recorded on this CPU at this time.");
  });

  it("a name has its slice's colour beside it, in both themes", async () => {
    await page.evaluate(async () => {
      const { app } = window.tompion!;
      const [lane] = [...app.tracks.laneKind].find(([, { kind }]) => kind === "span")!;
      const first = (await (await fetch(`api/step?lane=${lane}&time=0&dir=1`)).json()) as { begin: number };
      await app.select(lane, first.begin);
    });
    await page.waitForSelector('#page-detail[data-ready="true"] .facts');
    const [shown, own] = await page.evaluate(() => {
      const { app } = window.tompion!;
      const colour = app.tiles.labelColours[app.tiles.names.find(app.selected!.label)] ?? -1;
      const made = document.createElement("i");
      made.style.backgroundColor = app.palette.nameTexts[colour] ?? "";
      return [document.querySelector<HTMLElement>("#page-detail h2 .swatch i")!.style.backgroundColor, made.style.backgroundColor];
    });
    expect(shown).toBe(own);
    await page.keyboard.press("Escape");
    await page.keyboard.press("e");
    await page.waitForSelector('#page-selection[data-ready="true"] .shares i');
    const running = (): Promise<string> => page.locator("#page-selection .shares i").first().evaluate((part) => part.style.backgroundColor);
    const before = await running();
    await page.keyboard.press("Shift+T");
    await expect.poll(running, { timeout: 30_000 }).not.toBe(before);
    await page.keyboard.press("Shift+T");
    await expect.poll(running, { timeout: 30_000 }).toBe(before);
    await page.evaluate(() => {
      const { app } = window.tompion!;
      app.setArea(null);
      app.setTab("detail");
    });
  });

  it("names that arrive later are shown", async () => {
    const name = (track: number) => page.locator(`.track[data-track="${track}"] .name`).first();
    const before = await name(21).textContent();
    await page.evaluate(() => {
      const { app } = window.tompion!;
      const { parent, lanes, tid } = app.tracks.all.get(21)!;
      app.tracks.add([{ id: 21, parent, kind: "thread", name: "learned later", tid: tid!, lanes }]);
      app.tracks.layout();
      app.notify("tracks");
    });
    await expect.poll(() => name(21).textContent()).toBe("learned later");
    // Direction marks in a name affect only the name.
    expect(await name(21).evaluate((one) => getComputedStyle(one).unicodeBidi)).toBe("isolate");
    await page.evaluate((old) => {
      const { app } = window.tompion!;
      const { parent, lanes, tid } = app.tracks.all.get(21)!;
      app.tracks.add([{ id: 21, parent, kind: "thread", name: old!, tid: tid!, pid: 100, busy: 10, lanes }]);
      app.tracks.layout();
      app.notify("tracks");
    }, before);
  });

  it("a link has the area with its tracks, the table's filters, the search and the offsets", async () => {
    await area(page, [400, 160], [700, 260]);
    const tracks = await page.evaluate(() => window.tompion!.app.area!.tracks.map((id) => window.tompion!.app.tracks.all.get(id)!.title));
    expect(tracks.length).toBeGreaterThan(0);
    await page.evaluate(() => window.tompion!.app.setTab("events"));
    await page.fill("#page-events .filter:not(.glob)", "rows > 1 && a == \"x,y&z\"");
    await page.fill("#page-events .glob", "sched_*");
    await page.fill("#search", "needle");
    await page.click("#trace-name");
    await page.waitForFunction(() => /f=.*e=sched.*q=needle/.test(location.hash));
    // Track numbers belong to one index, so a link has none.
    expect(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("at")).toMatch(/^(cpu|thread|process|group):/);
    const other = await open(browser, page.url(), made.errors);
    const shown = await other.evaluate(() => {
      const { app } = window.tompion!;
      return { tracks: app.area!.tracks.map((id) => app.tracks.all.get(id)!.title), tab: app.tab, all: app.area!.all };
    });
    expect([shown.tracks, shown.tab]).toEqual([tracks, "events"]);
    expect(shown.all).toBe(false);
    expect(await other.inputValue("#page-events .filter:not(.glob)")).toBe("rows > 1 && a == \"x,y&z\"");
    expect(await other.inputValue("#page-events .glob")).toBe("sched_*");
    expect(await other.inputValue("#search")).toBe("needle");
    // Unknown tracks of a link stay pending.
    await other.evaluate(() => (location.hash = "v=0,400000000&s=thread:4711/thread,5000&p=thread:4711"));
    await other.waitForFunction(() => window.tompion!.app.pending.selected !== null);
    await other.evaluate(() => {
      const { app } = window.tompion!;
      app.tracks.add([{ id: 700, parent: 20, kind: "thread", name: "late", tid: 4711, lanes: [{ id: 1000, kind: "thread" }] }]);
      app.notify("tracks");
    });
    await other.waitForFunction(() => window.tompion!.app.tracks.pinned.includes(700) && window.tompion!.app.selected?.lane === 1000);
    // Traces are shifted as the link says.
    await other.evaluate(() => (location.hash = "v=0,400000000&x=0,3000000"));
    await other.waitForFunction(() => window.tompion!.app.info.traces[1]?.offset === 3_000_000);
    await other.evaluate(() => (location.hash = "v=0,300000000&x=0,0"));
    await other.waitForFunction(() => window.tompion!.app.info.traces[1]?.offset === 0);
    await other.close();
    await page.evaluate(() => window.tompion!.app.setTab("events"));
    for (const input of ["#page-events .filter:not(.glob)", "#page-events .glob", "#search"]) await page.fill(input, "");
    await page.click("#trace-name");
    await page.waitForFunction(() => !location.hash.includes("needle"));
  });

  it("the event table stays open when a slice is clicked, or its neighbours", async () => {
    await page.keyboard.press("3");
    await page.waitForSelector('#page-events[data-ready="true"] .event-row');
    await page.evaluate(() => window.tompion!.app.view.set({ begin: 170e6, end: 190e6 }));
    await settled(page);
    const slice = await sliceOf(page, "thread", [PREEMPTED]);
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForFunction(() => (window.tompion!.app.selected?.detail ?? null) !== null);
    const begin = (await selected())!.begin;
    await page.keyboard.press(".");
    await page.waitForFunction((before) => (window.tompion!.app.selected?.begin ?? 0) > before, begin);
    expect(await page.isVisible("#page-events")).toBe(true);
  });

  it("arrows select the table's rows, and Enter goes to one", async () => {
    await page.keyboard.press("3");
    await page.waitForSelector('#page-events[data-ready="true"] .event-row');
    await page.locator("#page-events .rows").focus();
    await page.keyboard.press("Home");
    for (let at = 0; at < 3; at++) await page.keyboard.press("ArrowDown");
    await page.waitForSelector('.event-row.chosen[data-row="3"]');
    expect(await page.getAttribute("#page-events .rows", "aria-activedescendant")).toBe("event-3");
    expect(await page.evaluate(() => window.tompion!.app.cursor)).toBeNull();
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => window.tompion!.app.cursor === 12);
  });

  it("keys show the panel, and make it taller", async () => {
    await page.keyboard.press("b");
    expect(await page.getAttribute("#panel-fold", "aria-expanded")).toBe("false");
    await page.keyboard.press("2");
    expect(await page.getAttribute("#panel-fold", "aria-expanded")).toBe("true");
    await page.keyboard.press("b");
    await page.keyboard.press("e");
    expect(await page.isVisible("#page-selection")).toBe(true);
    const height = () => page.evaluate(() => document.getElementById("panel")!.clientHeight);
    const before = await height();
    await page.keyboard.press("Control+ArrowUp");
    expect(await height()).toBeGreaterThan(before);
    await page.keyboard.press("Control+ArrowDown");
    await page.locator("#panel-grip").focus();
    await page.keyboard.press("ArrowDown");
    expect(await height()).toBeLessThan(before);
    await page.keyboard.press("ArrowUp");
  });

  it("arrows reach headings, and collapse them", async () => {
    const rows = () => page.evaluate(() => window.tompion!.app.tracks.rows.length);
    await page.evaluate(() => {
      const { app } = window.tompion!;
      app.current = 20;
      app.draw();
    });
    const before = await rows();
    await page.keyboard.press("Enter");
    const folded = await rows();
    expect(folded).toBeLessThan(before);
    await page.waitForSelector('.track[data-track="20"][aria-expanded="false"][aria-selected="true"]');
    await page.keyboard.press("ArrowRight");
    expect(await rows()).toBe(before);
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(() => window.tompion!.app.selected !== null);
    await page.keyboard.press("ArrowUp");
    await page.waitForFunction(() => window.tompion!.app.selected === null && window.tompion!.app.current === 20);
    await page.keyboard.press("ArrowUp");
    await page.waitForFunction(() => window.tompion!.app.selected !== null);
  });

  it("an area is measured by keys alone", async () => {
    await page.evaluate(() => window.tompion!.app.view.set({ begin: 170e6, end: 190e6 }));
    await settled(page);
    const slice = await sliceOf(page, "thread", [PREEMPTED]);
    await page.mouse.click(slice!.x, slice!.y);
    await page.waitForFunction(() => (window.tompion!.app.selected?.detail ?? null) !== null);
    const one = (await selected())!;
    const measured = () => page.evaluate(() => window.tompion!.app.area);
    await page.keyboard.press("Shift+ArrowRight");
    expect(await measured()).toMatchObject({ begin: one.begin, end: one.end });
    await page.keyboard.press("Shift+ArrowRight");
    await page.waitForFunction((end) => window.tompion!.app.area!.end > end, one.end);
    await page.keyboard.press("Shift+ArrowLeft");
    await page.waitForFunction((begin) => window.tompion!.app.area!.begin < begin, one.begin);
    const tracks = (await measured())!.tracks.length;
    await page.keyboard.press("Shift+ArrowDown");
    expect((await measured())!.tracks.length).toBe(tracks + 1);
    await page.waitForSelector('#page-selection[data-ready="true"]');
  });

  it("keys of other scripts count by their position, and Caps Lock is ignored", async () => {
    const press = (key: string, code: string) =>
      page.evaluate(([one, place]) => window.dispatchEvent(new KeyboardEvent("keydown", { key: one!, code: place! })) && window.dispatchEvent(new KeyboardEvent("keyup", { key: one!, code: place! })), [key, code]);
    await press("B", "KeyB");
    expect(await page.getAttribute("#panel-fold", "aria-expanded")).toBe("false");
    await press("и", "KeyB");
    expect(await page.getAttribute("#panel-fold", "aria-expanded")).toBe("true");
    const before = await page.evaluate(() => window.tompion!.app.view.span);
    await press("ц", "KeyW");
    expect(await page.evaluate(() => window.tompion!.app.view.span)).toBeLessThan(before);
    // French digits need Shift.
    await press("é", "Digit2");
    expect(await page.isVisible("#page-selection")).toBe(true);
  });

  it("keys move through the flame graph", async () => {
    await page.keyboard.press("4");
    await page.waitForSelector('#page-flame[data-ready="true"] canvas');
    await page.locator(".flame").focus();
    const status = () => page.textContent("#flame-status");
    await page.keyboard.press("ArrowDown");
    expect(await status()).toContain("main");
    await page.keyboard.press("ArrowDown");
    expect(await status()).toContain("handle_request");
    await page.keyboard.press("ArrowRight");
    expect(await status()).toContain("idle");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("Enter");
    await page.keyboard.press("ArrowUp");
    expect(await status(), "it fills the width, and nothing is above it").toContain("handle_request");
    await page.keyboard.press("Escape");
    await page.keyboard.press("ArrowUp");
    expect(await status()).toContain("main");
  });

  it("screen readers get a name for everything", async () => {
    const rows = page.locator("#names .track:not([hidden])");
    for (const name of ["aria-level", "aria-selected", "aria-label"]) expect(await rows.first().getAttribute(name), name).not.toBeNull();
    expect(await page.locator('.fold[aria-expanded="true"]').count()).toBeGreaterThan(0);
    const unnamed = await page.evaluate(() => {
      const named = (one: Element) => one.getAttribute("aria-label") ?? (one.getAttribute("aria-labelledby") !== null ? document.getElementById(one.getAttribute("aria-labelledby")!)?.id : null);
      const all = [...document.querySelectorAll("dialog, canvas:not([aria-hidden]), [role=tree], [role=tabpanel], [role=separator], [role=grid]")];
      return all.filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 80));
    });
    expect(unnamed).toEqual([]);
    await page.locator("#tab-detail").focus();
    await page.keyboard.press("ArrowRight");
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("tab-selection");
    expect(await page.getAttribute("#tab-selection", "aria-selected")).toBe("true");
    expect(await page.getAttribute("#tab-selection", "aria-controls")).toBe("page-selection");
    await page.keyboard.press("End");
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("tab-notes");
    await page.keyboard.press("ArrowRight");
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("tab-detail");
  });

  it("notes say where they are saved", async () => {
    await page.keyboard.press("5");
    expect(await page.textContent("#page-notes .lead")).toContain("Notes are saved in /traces/.tompion-view.");
  });

  it("problems of a trace fit into the header, and Enter shows them completely", async () => {
    await page.evaluate(() => {
      const { app } = window.tompion!;
      const damages = Array.from({ length: 700 }, (_, at) => `channel0_${at}: expected a packet, found <b>${at}</b> bytes of something else`);
      app.info = { ...app.info, damages, disorders: ["time goes back in channel0_1"], losses: { events: 123_456_789, packets: 3, overwritten: 987_654_321 }, error: "the index cannot be written: no space left on the device, which is a long line" };
      app.notify("info");
    });
    for (const id of ["search", "legend-button", "help-button"]) {
      const box = (await page.locator(`#${id}`).boundingBox())!;
      expect(box.x + box.width, id).toBeLessThanOrEqual(1280);
      expect(box.width, id).toBeGreaterThan(20);
    }
    const chip = page.locator("#warnings .chip", { hasText: "damage" });
    await chip.focus();
    await page.keyboard.press("Enter");
    await page.waitForSelector("#problem[open]");
    const lines = page.locator("#problem-lines li");
    expect(await lines.count()).toBe(501);
    expect(await lines.nth(3).textContent()).toContain("found <b>3</b> bytes");
    expect(await lines.last().textContent()).toBe("and 200 more");
    await page.keyboard.press("Escape");
    await page.evaluate(async () => {
      const { app } = window.tompion!;
      app.info = await (await fetch("api/trace")).json();
      app.notify("info");
    });
  });

  it("the overview has the losses of all channels, however many there are", async () => {
    await page.evaluate(() => {
      const { app } = window.tompion!;
      for (let at = 0; at < 50; at++) app.tracks.add([{ id: 800 + at, parent: -1, kind: "channel", name: `channel ${at}`, lanes: [{ id: 5000 + at, kind: "density" }] }]);
      app.notify("shift");
    });
    const colour = () =>
      page.evaluate(() => {
        const canvas = document.getElementById("minimap") as HTMLCanvasElement;
        const { begin, end } = window.tompion!.app.view.whole();
        const x = Math.round(((350e6 - begin) / (end - begin)) * canvas.width);
        const { data } = canvas.getContext("2d")!.getImageData(x - 2, 2, 5, 1);
        return [0, 4, 8, 12, 16].some((at) => (data[at] ?? 0) > 180 && (data[at + 1] ?? 0) < 120 && (data[at + 3] ?? 0) > 0);
      });
    await expect.poll(colour, { timeout: 30_000 }).toBe(true);
  });

  it("had no errors", () => expect(made.errors).toEqual([]));
});
