// What looking at a trace costs: the first picture, the answers to gestures, the page's main
// thread, memory.
//
//   node benches/view/measure.mjs [--events 1e6,1e8] [--corpus DIR] [--binary
//   target/release/tompion] [--folder DIR] [TRACE…]
//
// Traces of so many events are generated in DIR, and used again when they are there; those of the
// corpus of which the viewer's documentation speaks are copied there. Or else those that are named
// are measured. What is measured is told as tables in Markdown: one for each trace, and one of all.
// It wants the machine for itself: a browser that waits for a processor measures its neighbours.
//
// First pictures are counted from the command's start to the frame that shows lanes up to the
// trace's end, as the page itself tells: in a new tab of a browser that is there, and in a new
// window, for which Chromium loads a page of its own meanwhile.

import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { generate } from "./generate.mjs";

const ROOT = resolve(import.meta.dirname, "../..");
const { chromium } = createRequire(join(ROOT, "web/package.json"))("playwright-core");
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    events: { type: "string", default: "1e6,1e8" },
    corpus: { type: "string", default: resolve(ROOT, "../shared/ctf-corpus") },
    binary: { type: "string", default: join(ROOT, "target/release/tompion") },
    folder: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
/** Traces of other tracers: a kernel with many threads, robots, functions of a program, an old
 * kernel's. */
const CORPUS = ["many-threads", "ros2", "glxgears-cyg-profile", "bug446190"];
const DEADLINE = 1_800_000;
const GESTURES = 60;
/** What takes less than so many milliseconds is measured so many times more. */
const [SHORT, MORE] = [3000, 4];
const SCREEN = { viewport: { width: 1600, height: 900 } };
/** How long a window is left alone that was just opened, and how often is asked whether a picture
 * is there. */
const [QUIET, LOOK] = [2500, 200];
/** Categories of Chromium's trace that have tasks and frames. */
const CATEGORIES = ["devtools.timeline", "toplevel", "disabled-by-default-devtools.timeline"];

function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? Number.NaN : sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

function milliseconds(values) {
  const [half, most, worst] = [quantile(values, 0.5), quantile(values, 0.99), Math.max(...values)];
  return `${half.toFixed(1)} ms, ${most.toFixed(1)} ms, ${worst.toFixed(1)} ms (${values.length})`;
}

/** Starts the server; its address, its process, and when that was begun. */
function serve(trace) {
  const begun = performance.now();
  const server = spawn(options.binary, ["view", "--no-open", trace], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((found, failed) => {
    let text = "";
    server.stdout.on("data", (part) => {
      text += part;
      if (text.includes("\n")) found({ server, begun, url: text.trim(), listening: performance.now() - begun });
    });
    server.once("exit", (code) => failed(new Error(`tompion view ended with ${code}`)));
  });
}

/** Kilobytes of a line in a process's status, as megabytes. */
function memory(process, file, line) {
  const found = new RegExp(`^${line}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${process}/${file}`, "utf8"));
  return Number(found?.[1] ?? Number.NaN) / 1024;
}

/** Waits in the page until everything in sight is of the right level, be it that the server knows
 * more by now; the time until the next frame and until then. */
function settle(page) {
  return page.evaluate(
    () =>
      new Promise((done) => {
        const begun = performance.now();
        let first = 0;
        const look = () => {
          const now = performance.now() - begun;
          first ||= now;
          if (window.tompion?.there() === true) done([first, now]);
          else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      }),
  );
}

/** Zooms in and out, at places that differ, and moves; how long each took. */
async function gestures(page) {
  const [frames, settled] = [[], []];
  for (let step = 0; step < GESTURES; step++) {
    await page.mouse.move(400 + ((step * 97) % 800), 250 + ((step * 31) % 150));
    if (step % 6 === 5) await page.keyboard.press(step % 12 === 5 ? "d" : "a");
    else await page.mouse.wheel(0, step < GESTURES / 2 ? -300 : 300);
    const [frame, all] = await settle(page);
    frames.push(frame);
    settled.push(all);
  }
  return { frames, settled };
}

/** Processor time on the page's main thread, of frames' callbacks and of whole tasks, in
 * milliseconds. */
function mainThread(trace) {
  const events = JSON.parse(trace).traceEvents;
  const mains = new Set(events.filter((one) => one.name === "thread_name" && one.args?.name === "CrRendererMain").map((one) => `${one.pid}:${one.tid}`));
  const of = (names) =>
    events.filter((one) => one.ph === "X" && names.includes(one.name) && mains.has(`${one.pid}:${one.tid}`)).map((one) => (one.tdur ?? one.dur ?? 0) / 1000);
  return { callbacks: of(["FireAnimationFrame"]), tasks: of(["RunTask", "ThreadControllerImpl::RunTask"]).filter((time) => time > 0.5) };
}

async function pageMemory(browser, page) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const pages = processInfo.filter((one) => one.type === "renderer").map((one) => memory(one.id, "smaps_rollup", "Pss"));
  const all = processInfo.map((one) => memory(one.id, "smaps_rollup", "Pss")).filter((size) => !Number.isNaN(size));
  const target = await page.context().newCDPSession(page);
  await target.send("HeapProfiler.collectGarbage");
  const { usedSize } = await target.send("Runtime.getHeapUsage");
  return { page: Math.max(...pages), browser: all.reduce((sum, size) => sum + size, 0), heap: usedSize / 2 ** 20 };
}

/** How long it took from the start until the server knew everything. */
async function indexed(url, begun) {
  const question = url.replace("/?", "/api/trace?");
  for (;;) {
    if ((await (await fetch(question)).json()).progress >= 1) return performance.now() - begun;
    // A client that asks all the time is measured, too.
    await new Promise((done) => setTimeout(done, performance.now() - begun < SHORT ? 50 : 500));
  }
}

/** Runs in the page: keeps when all lanes in sight were drawn, some of them up to the trace's end:
 * read or sampled, not only how many events there are. */
function watchForPicture() {
  const isThere = () => {
    const { app, timeline, there } = window.tompion ?? {};
    if (app === undefined || document.documentElement.dataset.loaded !== "true" || !there()) return false;
    const { begin, end, span, limits } = app.view;
    const nearly = limits.end - 0.1 * (limits.end - limits.begin);
    return timeline.visibleLanes(0).some((lane) => {
      let last = -Infinity;
      if (app.tracks.laneKind.get(lane)?.kind === "density") return false;
      // Of boxes, begin and end stand by turns; of points, each fourth number is a time.
      app.tiles.cover(lane, begin, end, span / timeline.width, ({ times, shape }) => (last = times.at(shape === "boxes" ? -1 : -4) ?? last));
      return last > nearly;
    });
  };
  const look = () => {
    // It is drawn when the next frame is begun.
    if (isThere()) requestAnimationFrame(() => (window.shown = performance.timeOrigin + performance.now()));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

/** Opens the page; returns it when it has its first picture, and how long that took. */
async function firstPicture(open, url, begun) {
  const page = await open();
  page.setDefaultTimeout(DEADLINE);
  await page.addInitScript(watchForPicture);
  await page.goto(url, { waitUntil: "commit" });
  // A client that asks all the time gets its picture, too.
  const shown = await page.waitForFunction(() => window.shown, undefined, { polling: LOOK });
  return { page, first: (await shown.jsonValue()) - performance.timeOrigin - begun };
}

/** How long an empty page takes: what of a first picture is the browser's own. */
async function emptyPage(open) {
  const server = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<!doctype html><canvas></canvas>"));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    const begun = performance.now();
    const page = await open();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));
    const shown = performance.now() - begun;
    await page.close();
    return shown;
  } finally {
    server.close();
  }
}

/** The first picture of a trace of which the index is there, or is not. */
async function opened(open, trace, isKnown) {
  if (!isKnown) rmSync(join(trace, ".tompion-view/index"), { force: true });
  const { server, begun, url } = await serve(trace);
  try {
    const { page, first } = await firstPicture(open, url, begun);
    await page.close();
    return first;
  } finally {
    server.kill("SIGTERM");
  }
}

/** Asks again for what takes so short that a single time says little; the median of all. */
async function median(first, ask) {
  const times = [first ?? (await ask())];
  if (times[0] < SHORT) for (let more = 0; more < MORE; more++) times.push(await ask());
  return quantile(times, 0.5);
}

/** All of a trace; returns its row of the last table. */
async function measure({ browser, tab, window }, trace) {
  rmSync(join(trace, ".tompion-view/index"), { force: true });
  const { server, begun, url, listening } = await serve(trace);
  const whole = indexed(url, begun);
  let page;
  try {
    let first;
    ({ page, first } = await firstPicture(tab, url, begun));
    const building = await gestures(page);
    await page.waitForFunction(() => window.tompion?.app.info.progress >= 1, undefined, { polling: 200 });
    const index = await whole;
    await page.keyboard.press("Home");
    await settle(page);
    const { frames, settled } = await gestures(page);
    await browser.startTracing(page, { categories: CATEGORIES });
    await gestures(page);
    const { callbacks, tasks } = mainThread((await browser.stopTracing()).toString());
    const events = await page.evaluate(() => window.tompion.app.info.events);
    const used = await pageMemory(browser, page);
    const row = (what, value) => console.log(`| ${what} | ${value} |`);
    console.log(`\n| ${basename(trace)}: ${events.toLocaleString("en")} events | |\n|---|---|`);
    row("address printed", `${listening.toFixed(0)} ms`);
    row("whole index", seconds(index));
    row("next frame after a gesture: half, 99 %, longest (of)", milliseconds(frames));
    row("all in sight is there after a gesture", milliseconds(settled));
    row("the same while the index is built", milliseconds(building.settled));
    row("main thread, a frame's callback", milliseconds(callbacks));
    row("main thread, whole tasks over 0.5 ms", milliseconds(tasks));
    row("memory of the page's process, of the browser, of JavaScript", `${used.page.toFixed(0)} MB, ${used.browser.toFixed(0)} MB, ${used.heap.toFixed(0)} MB`);
    row("memory of the server at most", `${memory(server.pid, "status", "VmHWM").toFixed(0)} MB`);
    server.kill("SIGTERM");
    const known = await median(undefined, () => opened(tab, trace, true));
    first = await median(first, () => opened(tab, trace, false));
    const apart = await median(undefined, () => opened(window, trace, false));
    row("first picture", seconds(first));
    row("first picture in a new window", seconds(apart));
    row("first picture of it when it is opened again", seconds(known));
    const most = [quantile(settled, 0.99), quantile(building.settled, 0.99), quantile(callbacks, 0.99), quantile(tasks, 0.99)];
    const firsts = `${seconds(first)}, ${seconds(apart)}`;
    return [basename(trace), events.toLocaleString("en"), firsts, seconds(known), seconds(index), ...most.map((time) => `${time.toFixed(0)} ms`), `${used.page.toFixed(0)} MB`];
  } finally {
    await page?.close();
    server.kill("SIGTERM");
  }
}

function seconds(milliseconds) {
  return `${(milliseconds / 1000).toFixed(2)} s`;
}

const folder = options.folder ?? mkdtempSync(join(tmpdir(), "tompion-view-bench-"));
const traces = [...positionals];
for (const text of positionals.length > 0 ? [] : options.events.split(",")) {
  const trace = join(folder, `events-${text}`);
  if (!existsSync(join(trace, "metadata"))) generate(Number(text), trace);
  traces.push(trace);
}
for (const name of positionals.length > 0 ? [] : CORPUS) {
  const [from, to] = [join(options.corpus, name), join(folder, name)];
  if (!existsSync(from)) console.error(`not measured: ${from} is not there`);
  // An index is kept beside what is measured.
  else if (!existsSync(to)) cpSync(from, to, { recursive: true });
  if (existsSync(to)) traces.push(to);
}
const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
try {
  const context = await browser.newContext(SCREEN);
  const [tab, window] = [() => context.newPage(), () => browser.newPage(SCREEN)];
  await tab();
  await new Promise((done) => setTimeout(done, QUIET));
  // The first page of all takes longer than others.
  await emptyPage(tab);
  await emptyPage(window);
  const empty = [await median(undefined, () => emptyPage(tab)), await median(undefined, () => emptyPage(window))];
  console.log(`An empty page takes ${seconds(empty[0])}, in a new window ${seconds(empty[1])}.`);
  const rows = [];
  for (const trace of traces) rows.push(await measure({ browser, tab, window }, trace));
  const heads = ["trace", "events", "first picture, in a new window", "opened again", "whole index", "a gesture's picture, 99 %", "while the index is built, 99 %", "a frame's callback, 99 %", "whole tasks, 99 %", "the page's memory"];
  const line = (cells) => `| ${cells.join(" | ")} |`;
  console.log(["", line(heads), line(heads.map(() => "---")), ...rows.map(line)].join("\n"));
} finally {
  await browser.close();
  if (options.folder === undefined) rmSync(folder, { recursive: true, force: true });
}
