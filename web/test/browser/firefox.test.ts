// Firefox opens the page, draws, zooms, selects and measures. Chromium's tests cover the details.

import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { start } from "../mock/server.mjs";
import { Firefox } from "./bidi";
import { available, view } from "./server";

const BINARY = process.env["TOMPION_FIREFOX"] ?? "/usr/bin/firefox-esr";
const isThere = existsSync(BINARY);
if (!isThere) console.log(`SKIPPED, there is no Firefox: expected ${BINARY}, of Debian's package firefox-esr`);

/** Number of colours on the timeline's canvas. */
const COLOURS = `(() => {
  const canvas = document.getElementById("lanes");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  return colours.size;
})()`;

describe.skipIf(!isThere)("Firefox", () => {
  it("shows made-up data, zooms, and describes a slice", async () => {
    const server = await start();
    const firefox = await Firefox.launch(BINARY);
    try {
      await firefox.open(server.url);
      await firefox.until(`document.documentElement.dataset.loaded === "true" && window.tompion.settled()`);
      expect(await firefox.evaluate(`document.querySelector("#trace-name").textContent`)).toBe("made-up <b>trace</b>");
      expect(await firefox.evaluate(COLOURS)).toBeGreaterThan(5);
      const before = Number(await firefox.evaluate("window.tompion.app.view.span"));
      await firefox.evaluate(`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "w", bubbles: true }))`);
      await firefox.until(`window.tompion.app.view.span < ${before} && window.tompion.settled()`);
      await firefox.evaluate(`window.tompion.app.setTab("selection")`);
      await firefox.evaluate(`[...document.querySelectorAll("#page-selection button")].find((one) => one.textContent.startsWith("Measure")).click()`);
      await firefox.until(`document.querySelector('#page-selection[data-ready="true"] .card .list.virtual tbody tr')`);
      const picture = await firefox.picture();
      expect(picture.subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
    } finally {
      firefox.stop();
      server.stop();
    }
  });

  it.skipIf(!available("many-threads"))("shows a trace by the real command", async () => {
    const server = await view("many-threads");
    const firefox = await Firefox.launch(BINARY);
    try {
      await firefox.open(server.url);
      await firefox.until(`document.documentElement.dataset.loaded === "true" && window.tompion.app.info.progress >= 1 && window.tompion.settled()`);
      expect(await firefox.evaluate("window.tompion.app.info.events")).toBe(240644);
      expect(await firefox.evaluate(COLOURS)).toBeGreaterThan(5);
    } finally {
      firefox.stop();
      server.stop();
    }
  });
});
