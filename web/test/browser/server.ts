// Servers and browser of the browser tests: the debug binary on a trace, or the mock server.

import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { type Browser, chromium, type Page } from "playwright-core";
import { start } from "../mock/server.mjs";

/** Time limit of any step, generous for a busy machine. */
export const DEADLINE = 60_000;

export const ROOT = resolve(import.meta.dirname, "../../..");
const CHROMIUM = process.env["TOMPION_CHROMIUM"] ?? "/usr/bin/chromium";
export const BINARY = process.env["TOMPION_BINARY"] ?? join(ROOT, "target/debug/tompion");
export const CORPUS = process.env["TOMPION_CORPUS"] ?? resolve(ROOT, "../shared/ctf-corpus");

export interface Running {
  url: string;
  stop: () => void;
}

export interface Viewing extends Running {
  /** Stops the server, but keeps the folder with the index. */
  end: () => Promise<void>;
  /** Folder of the copied traces. */
  folder: string;
}

/** Whether a trace of the corpus and the binary exist. */
export function available(trace: string): boolean {
  return existsSync(BINARY) && existsSync(join(CORPUS, trace));
}

/** Starts `tompion view` on copies of traces, since it writes an index next to them. */
export async function view(...traces: string[]): Promise<Viewing> {
  const folder = mkdtempSync(join(tmpdir(), "tompion-page-"));
  for (const trace of traces) cpSync(join(CORPUS, trace), join(folder, trace), { recursive: true });
  return viewIn(folder, ...traces);
}

/** Starts `tompion view` on traces in a folder, which is removed at the end. */
export async function viewIn(folder: string, ...traces: string[]): Promise<Viewing> {
  const paths = traces.map((trace) => join(folder, trace));
  const server = spawn(BINARY, ["view", "--no-open", ...paths], { stdio: ["ignore", "pipe", "pipe"] });
  const url = await firstLine(server);
  return {
    url,
    folder,
    end: () =>
      new Promise((ended) => {
        server.once("exit", () => ended());
        server.kill("SIGTERM");
      }),
    stop: () => {
      server.kill("SIGTERM");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function firstLine(server: ChildProcess): Promise<string> {
  return new Promise((found, failed) => {
    let [text, errors] = ["", ""];
    const timer = setTimeout(() => failed(new Error(`no address within a minute: ${errors}`)), DEADLINE);
    server.stderr?.on("data", (part: Buffer) => (errors += part.toString()));
    server.stdout?.on("data", (part: Buffer) => {
      text += part.toString();
      const line = /http:\S+/.exec(text)?.[0];
      if (line === undefined || !text.includes("\n")) return;
      clearTimeout(timer);
      found(line);
    });
    server.once("exit", (code) => failed(new Error(`tompion view ended with ${code}: ${errors}`)));
  });
}

export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
}

/** Page on made-up data. */
export interface MadeUp {
  server: Running;
  browser: Browser;
  page: Page;
  /** Errors of the page. */
  errors: string[];
}

/** Provides the page to the tests of the calling file. Its fields are set before they run. */
export function onMadeUpData(): MadeUp {
  const all = { errors: [] as string[] } as MadeUp;
  beforeAll(async () => {
    all.server = await start();
    all.browser = await launch();
    all.page = await open(all.browser, all.server.url, all.errors);
  });
  afterAll(async () => {
    await all.browser?.close();
    all.server?.stop();
  });
  return all;
}

/** Opens the page and waits until it has drawn everything. */
export async function open(browser: Browser, url: string, errors: string[] = []): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 720 } });
  page.setDefaultTimeout(DEADLINE);
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    // Browsers request an icon of every server.
    if (message.type() === "error" && !message.text().includes("404")) errors.push(message.text());
  });
  await page.goto(url);
  await page.waitForSelector('html[data-loaded="true"]');
  await settled(page);
  return page;
}

/** Waits until everything visible is drawn from the right level. */
export async function settled(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.waitForFunction(() => window.tompion?.settled() === true && window.tompion.app.info.progress >= 1);
}

/** Length of the visible range in nanoseconds. */
export function span(page: Page): Promise<number> {
  return page.evaluate(() => window.tompion?.app.view.span ?? 0);
}

/** Position of the widest visible slice of some styles, on lanes of a kind. */
export async function sliceOf(page: Page, kind: string, styles: number[]): Promise<{ x: number; y: number; width: number } | null> {
  return page.evaluate(
    ([wanted, among]) => {
      const { app, timeline } = window.tompion!;
      const stage = document.getElementById("stage")!.getBoundingClientRect();
      let best: { x: number; y: number; width: number } | null = null;
      for (const { row, y } of timeline.placed) {
        for (const slot of row.slots) {
          const middle = y + slot.y + slot.height * 0.8;
          if (slot.lane.kind !== wanted || middle < timeline.divider || middle > timeline.height - 2) continue;
          app.tiles.cover(slot.lane.id, app.view.begin, app.view.end, app.view.span / timeline.width, (tile, from, to) => {
            for (let at = 0; at < tile.styles.length; at++) {
              if (!among.includes(tile.styles[at] ?? -1)) continue;
              const left = timeline.xOf(Math.max(from, tile.times[2 * at] ?? 0));
              const right = timeline.xOf(Math.min(to, tile.times[2 * at + 1] ?? 0));
              if (left < 0 || right > timeline.width || right - left <= (best?.width ?? 0)) continue;
              best = { x: stage.left + (left + right) / 2, y: stage.top + middle, width: right - left };
            }
          });
        }
      }
      return best;
    },
    [kind, styles] as const,
  );
}

/** Drags a rectangle with Shift. */
export async function area(page: Page, from: [number, number], to: [number, number]): Promise<void> {
  await page.keyboard.down("Shift");
  await page.mouse.move(...from);
  await page.mouse.down();
  await page.mouse.move(...to, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
}
