// Steps of docs/guide/why-late.md: three clicks from a late job to its cause, in the trace of the
// repository and in one that is recorded here.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { Page } from "playwright-core";
import { BINARY, launch, open, settled, viewIn } from "./server";

const [PREEMPTED, LATE] = [4, 18];
const ROOT = resolve(import.meta.dirname, "../../..");

/** Records the guide's trace. Returns null where that is impossible. */
function record(): string | null {
  const library = join(dirname(BINARY), "libtompion.so");
  if (!existsSync(BINARY) || !existsSync(library)) return null;
  const folder = mkdtempSync(join(tmpdir(), "tompion-late-"));
  for (const name of ["libtompion.so", "libtompion.so.0"]) symlinkSync(library, join(folder, name));
  const words = ["-std=c11", "-O2", join(ROOT, "examples/late.c"), "-o", join(folder, "late"), "-I", join(ROOT, "include"), "-L", folder, "-ltompion", "-lpthread", `-Wl,-rpath,${folder}`];
  const compiled = spawnSync("cc", words, { encoding: "utf8" });
  if (compiled.status !== 0) throw new Error(`examples/late.c: ${compiled.stderr}`);
  const recorded = spawnSync(BINARY, ["record", "-k", "-o", join(folder, "late-trace"), "--", join(folder, "late")], { encoding: "utf8" });
  if (recorded.status === 0) return folder;
  console.log(`SKIPPED, the kernel can't be recorded here: ${recorded.stderr.trim().split("\n").at(-1)}`);
  rmSync(folder, { recursive: true, force: true });
  return null;
}

/** Copies the repository's trace, since the viewer writes an index next to it. */
function prepared(): string | null {
  if (!existsSync(BINARY)) return null;
  const folder = mkdtempSync(join(tmpdir(), "tompion-late-"));
  cpSync(join(ROOT, "examples/late-trace"), join(folder, "late-trace"), { recursive: true });
  return folder;
}

interface Place {
  x: number;
  y: number;
}

/** Positions of all slices of a style, on lanes of a kind of the thread with this name. */
function slicesOf(page: Page, thread: string, kind: string, style: number): Promise<Place[]> {
  return page.evaluate(
    ([name, wanted, among]) => {
      const { app, timeline } = window.tompion!;
      const stage = document.getElementById("stage")!.getBoundingClientRect();
      const places: { x: number; y: number }[] = [];
      for (const { row, y } of timeline.placed) {
        if (row.track.name !== name) continue;
        for (const slot of row.slots) {
          if (slot.lane.kind !== wanted) continue;
          app.tiles.cover(slot.lane.id, app.view.begin, app.view.end, app.view.span / timeline.width, (tile, from, to) => {
            for (let at = 0; at < tile.styles.length; at++) {
              const [begin, end] = [Math.max(from, tile.times[2 * at] ?? 0), Math.min(to, tile.times[2 * at + 1] ?? 0)];
              if (tile.styles[at] !== among || tile.counts[at] !== 1 || end <= begin) continue;
              places.push({ x: stage.left + timeline.xOf((begin + end) / 2), y: stage.top + y + slot.y + slot.height * 0.8 });
            }
          });
        }
      }
      return places;
    },
    [thread, kind, style] as const,
  );
}

describe.each([["in the repository", prepared()], ["recorded here", record()]])("why was it late? The trace %s", (_, folder) => {
  if (folder === null) {
    it.skip("is answered by three clicks", () => undefined);
    return;
  }
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("is answered by three clicks", async () => {
    const server = await viewIn(folder, "late-trace");
    const browser = await launch();
    try {
      const page = await open(browser, server.url);
      const jobs = await slicesOf(page, "controller", "span", LATE);
      expect(jobs.length, "late jobs in sight").toBeGreaterThan(3);
      const answers: string[] = [];
      for (const job of jobs) {
        // First click: a late job. Enter zooms to it.
        await page.mouse.click(job.x, job.y);
        await page.waitForSelector('#page-detail[data-ready="true"] .facts');
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => !window.tompion!.app.view.moving);
        await settled(page);
        // Second click: an orange part above it.
        for (const part of await slicesOf(page, "controller", "thread", PREEMPTED)) {
          await page.mouse.click(part.x, part.y);
          await page.waitForFunction((style) => window.tompion!.app.selected?.detail?.style === style, PREEMPTED);
          const answer = (await page.textContent("#page-detail .answer")) ?? "";
          answers.push(answer);
          if (!answer.startsWith("Preempted by compressor")) continue;
          // Third click: the link to what the other thread did then.
          await page.click('#page-detail [data-role="culprit"]');
          await page.waitForFunction(() => {
            const { app } = window.tompion!;
            const track = app.tracks.all.get(app.tracks.laneTrack.get(app.selected?.lane ?? -1) ?? -1);
            return track?.name === "compressor" && app.selected?.detail !== null;
          });
          await settled(page);
          expect(await page.evaluate(() => window.tompion!.app.tiles.labels)).toContain("log:compress");
          return;
        }
        await page.keyboard.press("Home");
        await page.waitForFunction(() => !window.tompion!.app.view.moving);
        await settled(page);
      }
      expect.fail(`no late job was preempted by the compressor: ${answers.join("; ")}`);
    } finally {
      await browser.close();
      server.stop();
    }
  });
});
