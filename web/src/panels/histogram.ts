// Histogram of durations. A click on a bar goes to its longest slice.

import type { App } from "../app";
import { el, link, shorten } from "../dom";
import { duration, durationOrDash, grouped } from "../data/time";
import type { DurationStats } from "../data/wire";

/** Creates the histogram of a name's durations. */
export function histogram(app: App, one: DurationStats): HTMLElement {
  const bins = one.histogram;
  const most = bins.reduce((max, [, , count]) => Math.max(max, count), 1);
  const bars = el("div", { class: "bars" });
  for (const [low, high, count, longest] of bins) {
    const bar = el("button", {
      class: "bar",
      title: `${duration(low)} – ${duration(high)}: ${grouped(count)}${longest ? "; click for the longest one" : ""}`,
      attributes: { type: "button", "aria-label": `${duration(low)} to ${duration(high)}: ${grouped(count)}` },
      data: { count: String(count) },
    });
    const inner = el("i");
    inner.style.height = count === 0 ? "0" : `${Math.max(4, Math.sqrt(count / most) * 100)}%`;
    bar.append(inner);
    if (longest && count > 0) bar.addEventListener("click", () => app.jump(longest.lane, longest.begin, longest));
    else bar.disabled = true;
    bars.append(bar);
  }
  const [first, last] = [bins[0], bins.at(-1)];
  const axis = el("div", { class: "axis", title: "Each bar covers twice the range of the one before; heights are square roots" }, el("span", { text: first ? duration(first[0]) : "" }), el("span", { class: "scale", text: "heights are square roots of counts" }), el("span", { text: last ? duration(last[1]) : "" }));
  const longest = one.longest;
  const title = el("div", { class: "histogram-title" }, el("b", { text: shorten(one.name, 60) }), ` ${grouped(one.count)} times, median ${durationOrDash(one.p50)}, max `);
  title.append(longest ? link(durationOrDash(one.max), "Jump to it", () => app.jump(longest.lane, longest.begin, longest)) : durationOrDash(one.max));
  return el("div", { class: "histogram" }, title, bars, axis);
}
