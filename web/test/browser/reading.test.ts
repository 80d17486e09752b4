// The page on a trace that is still being read when it is opened: what becomes known later is shown as if it had been there.

import { afterEach, describe, expect, it } from "vitest";
import type { Page, Route } from "playwright-core";
import type { TraceInfo, WireTrack } from "../../src/wire";
import { DEADLINE, onMadeUpData, settled } from "./server";

describe("the page on a trace that is being read", () => {
  const made = onMadeUpData();
  let page: Page | undefined;
  /** Whether all is known of the trace, or nothing but its channels. */
  let isWhole = false;

  afterEach(async () => {
    await page?.close();
    isWhole = false;
  });

  /** Opens the page on a server that answers so. */
  async function openOn(trace: (info: TraceInfo) => Promise<TraceInfo> | TraceInfo): Promise<Page> {
    const opened = await made.browser.newPage({ viewport: { width: 1280, height: 720 } });
    opened.setDefaultTimeout(DEADLINE);
    const answer = async <Answer>(route: Route, change: (answer: Answer) => Promise<Answer> | Answer): Promise<void> => {
      const response = await route.fetch();
      await route.fulfill({ response, json: await change((await response.json()) as Answer) });
    };
    await opened.route("**/api/trace", (route) => answer<TraceInfo>(route, trace));
    await opened.route(/\/api\/tracks/, (route) => {
      const known = isWhole;
      return answer<{ tracks: WireTrack[] }>(route, ({ tracks }) => ({
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

  it("unfolds the processors that become known later", async () => {
    const page = await openOn((info) => ({ ...info, progress: isWhole ? 1 : 0.1, glimpses: isWhole ? 1 : 0 }));
    expect(await kindsInSight(page)).toEqual(["density"]);
    isWhole = true;
    await settled(page);
    expect(await kindsInSight(page)).toContain("cpu");
    expect(await kindsInSight(page)).toContain("thread");
  });

  it("has no older tracks than what says that all is known", async () => {
    const page = await openOn(async (info) => {
      // Whoever asks for both at once gets the tracks of before.
      await new Promise((done) => setTimeout(done, 300));
      isWhole = true;
      return { ...info, progress: 1 };
    });
    await settled(page);
    expect(await kindsInSight(page)).toContain("cpu");
  });
});
