// Makes the pictures of the viewer in docs/images, of the trace in examples and of those of the
// corpus.
//
//   node benches/view/pictures.mjs [--corpus DIR] [--binary target/release/tompion] [--out
//   docs/images] [NAME…]

import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";

const ROOT = resolve(import.meta.dirname, "../..");
const { chromium } = createRequire(join(ROOT, "web/package.json"))("playwright-core");
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    corpus: { type: "string", default: resolve(ROOT, "../shared/ctf-corpus") },
    binary: { type: "string", default: join(ROOT, "target/release/tompion") },
    out: { type: "string", default: join(ROOT, "docs/images") },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
const LATE = join(ROOT, "examples/late-trace");

/** Waits until all is drawn. */
async function settled(page) {
  await page.waitForTimeout(300);
  await page.waitForFunction(() => window.tompion?.settled() === true && window.tompion.app.info.progress >= 1);
}

/** The n-th box of a style on the lane of a kind of a thread, as a lane with times. */
function box(page, thread, kind, style, number) {
  return page.evaluate(
    ([name, wanted, among, at]) => {
      const { app } = window.tompion;
      const track = [...app.tracks.all.values()].find((one) => one.name === name && one.kind === "thread");
      const lane = track.lanes.find((one) => one.kind === wanted);
      const found = [];
      app.tiles.cover(lane.id, app.view.begin, app.view.end, app.view.span / 1000, (tile) => {
        for (let box = 0; box < tile.styles.length; box++) if (tile.styles[box] === among) found.push([tile.times[2 * box], tile.times[2 * box + 1]]);
      });
      return { lane: lane.id, begin: found[at][0], end: found[at][1] };
    },
    [thread, kind, style, number],
  );
}

async function choose(page, { lane, begin, end }, around) {
  await page.evaluate(
    async ([id, from, to, [first, last]]) => {
      const { app } = window.tompion;
      app.view.set({ begin: first, end: last });
      await app.select(id, Math.floor((from + to) / 2));
    },
    [lane, begin, end, around],
  );
  await page.waitForSelector('#page-detail[data-ready="true"]');
}

/** Shows a stretch of time without the panel. */
async function look(page, begin, end) {
  await page.keyboard.press("b");
  await page.evaluate(([from, to]) => window.tompion.app.view.set({ begin: from, end: to }), [begin, end]);
}

/** Of which trace, how large, and what is done before it is taken. */
const PICTURES = {
  timeline: { trace: LATE, height: 660 },
  late: {
    trace: LATE,
    height: 660,
    async steps(page) {
      const job = await box(page, "controller", "span", 18, 0);
      const wait = await box(page, "controller", "thread", 4, 1);
      const inside = wait.begin >= job.begin ? wait : { ...wait, begin: job.begin + 2e6, end: job.begin + 4e6 };
      await choose(page, inside, [job.begin - 6e6, job.end + 4e6]);
    },
  },
  selection: {
    trace: LATE,
    async steps(page) {
      // The program's rows, from its first job to its last.
      await page.evaluate(() => {
        const { app } = window.tompion;
        const late = [...app.tracks.all.values()].find((one) => one.kind === "process" && one.name === "late");
        app.setArea({ begin: 84e6, end: 377e6, all: false, tracks: [late.id] });
      });
      await page.waitForSelector('#page-selection[data-ready="true"] .events-card');
      await page.evaluate(() => (document.getElementById("panel").style.height = "420px"));
    },
  },
  events: {
    trace: LATE,
    theme: "dark",
    async steps(page) {
      const job = await box(page, "controller", "span", 18, 1);
      await choose(page, job, [job.begin - 12e6, job.end + 12e6]);
      await page.keyboard.press("3");
      await page.waitForSelector('#page-events[data-ready="true"] .event-row');
      await page.fill("#page-events .glob", "sched_*");
      await page.waitForTimeout(600);
      await page.waitForSelector('#page-events[data-ready="true"] .event-row.chosen');
    },
  },
  notes: {
    trace: LATE,
    async steps(page) {
      const [first, second] = [await box(page, "controller", "span", 18, 0), await box(page, "controller", "span", 18, 1)];
      await page.evaluate(
        async ([one, other]) => {
          const { app } = window.tompion;
          const track = app.tracks.laneTrack.get(one.lane);
          app.notes = [
            { time: one.begin, end: one.end, text: "late: the compressor had the CPU", track },
            { time: other.begin, end: other.end, text: "late: waited for the lock of settings", track },
          ];
          await app.saveNotes();
          app.setTab("notes");
        },
        [first, second],
      );
    },
  },
  flame: {
    trace: join(options.corpus, "glxgears-cyg-profile"),
    height: 520,
    async steps(page) {
      await page.evaluate(() => (document.getElementById("panel").style.height = "250px"));
      await page.keyboard.press("4");
      await page.waitForSelector('#page-flame[data-ready="true"] canvas');
    },
  },
  ros2: {
    trace: join(options.corpus, "ros2"),
    height: 434,
    steps: (page) => look(page, 4_580_500_000, 4_581_500_000),
  },
  bug446190: {
    trace: join(options.corpus, "bug446190"),
    height: 520,
    steps: (page) => look(page, 1_977_000_000, 2_047_000_000),
  },
};

async function address(server) {
  let text = "";
  for await (const part of server.stdout) {
    text += part;
    const line = /http:\S+/.exec(text)?.[0];
    if (line !== undefined && text.includes("\n")) return line;
  }
  throw new Error("no address");
}

async function take(browser, name, { trace, height = 720, theme = "light", steps }) {
  const folder = mkdtempSync(join(tmpdir(), "tompion-pictures-"));
  const copy = join(folder, basename(trace));
  cpSync(trace, copy, { recursive: true });
  rmSync(join(copy, ".tompion-view"), { recursive: true, force: true });
  const server = spawn(options.binary, ["view", "--no-open", copy], { stdio: ["ignore", "pipe", "ignore"] });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height }, colorScheme: theme });
    await page.goto(await address(server));
    await page.waitForSelector('html[data-loaded="true"]');
    await settled(page);
    await steps?.(page);
    await page.mouse.move(2, 2);
    await settled(page);
    await page.screenshot({ path: join(options.out, `${name}.png`) });
    await page.close();
    console.log(`${name}.png`);
  } finally {
    server.kill("SIGTERM");
    rmSync(folder, { recursive: true, force: true });
  }
}

const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox", "--disable-gpu"] });
try {
  for (const [name, picture] of Object.entries(PICTURES)) {
    if (positionals.length > 0 && !positionals.includes(name)) continue;
    if (existsSync(picture.trace)) await take(browser, name, picture);
    else console.log(`${name}: not made, ${picture.trace} is not there`);
  }
} finally {
  await browser.close();
}
