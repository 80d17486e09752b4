// What the colours mean, shown where nothing else is to be told, and by a key.

import type { App } from "./app";
import { STATE_WORDS } from "./colours";
import { el } from "./dom";
import { Style } from "./wire";

const GROUPS: readonly [string, readonly number[]][] = [
  ["Threads", [Style.running, Style.readyWoken, Style.readyPreempted, Style.blocked, Style.blockedHard, Style.unknown]],
  ["CPUs", [Style.interrupt, Style.softirq, Style.idle]],
  ["Below threads", [Style.syscall, Style.span, Style.job, Style.jobLate, Style.mark]],
  ["Missing", [Style.lost, Style.overwritten]],
];

const LOW: readonly number[] = [Style.blocked, Style.blockedHard, Style.unknown];
const HATCHED: readonly number[] = [Style.lost, Style.overwritten, Style.unknown];

/** A patch of a style's colour, as the timeline draws it. */
export function patch(app: App, style: number): HTMLElement {
  const colour = app.palette.states[style] ?? "";
  const inner = el("i");
  inner.style.backgroundColor = colour;
  const swatch = el("span", { class: "swatch" }, inner);
  if (LOW.includes(style)) swatch.classList.add("low");
  if (HATCHED.includes(style)) {
    inner.style.backgroundColor = "";
    inner.style.backgroundImage = `repeating-linear-gradient(135deg, ${colour} 0 2px, transparent 2px 5px)`;
  }
  return swatch;
}

function named(app: App): HTMLElement {
  const swatch = el("span", { class: "swatch several" });
  for (const at of [0, 3, 8]) {
    const part = el("i");
    part.style.backgroundColor = app.palette.nameTexts[at] ?? "";
    swatch.append(part);
  }
  return el("li", {}, swatch, el("b", { text: "a thread runs" }), el("span", { text: "one colour for each name" }));
}

function sampled(app: App): HTMLElement {
  const swatch = patch(app, Style.running);
  swatch.classList.add("sampled");
  return el("li", {}, swatch, el("b", { text: "sampled" }), el("span", { text: "its beginning was seen, not the rest" }));
}

/** The whole legend. */
export function legend(app: App): HTMLElement {
  const root = el("div", { class: "legend" });
  for (const [title, styles] of GROUPS) {
    const list = el("ul");
    if (title === "CPUs") list.append(named(app));
    for (const style of styles) {
      const [word, meaning] = STATE_WORDS[style] ?? ["", ""];
      list.append(el("li", {}, patch(app, style), el("b", { text: word }), el("span", { text: meaning })));
    }
    if (title === "Missing") list.append(sampled(app));
    root.append(el("section", {}, el("h3", { text: title }), list));
  }
  return root;
}
