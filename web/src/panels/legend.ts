// Legend of colours and marks: in the empty detail tab, and in a dialog.

import type { App } from "../app";
import { nameColour } from "../draw/colours";
import { el } from "../dom";
import { hasNameColour, markColour } from "../draw/slice_strip";
import { STATE_WORDS, Style } from "../data/wire";

const GROUPS: readonly [string, readonly number[]][] = [
  ["Threads", [Style.running, Style.runnable, Style.runnablePreempted, Style.sleeping, Style.uninterruptible, Style.stopped, Style.created, Style.unknown]],
  ["CPUs", [Style.interrupt, Style.softirq, Style.idle]],
  ["Thread activity", [Style.syscall, Style.span, Style.function, Style.job, Style.lateJob, Style.mark]],
  ["Counters and channels", [Style.counter, Style.density, Style.lost, Style.overwritten]],
];

const LOW: readonly number[] = [Style.sleeping, Style.uninterruptible, Style.stopped, Style.created, Style.unknown];
const HATCHED: readonly number[] = [Style.lost, Style.overwritten, Style.unknown];

/** Converts a packed colour to CSS. */
function css(colour: number): string {
  return `rgb(${colour & 255} ${(colour >>> 8) & 255} ${(colour >>> 16) & 255})`;
}

/** Patch with the colour of a slice: its name's, or else its style's. */
export function patchOf(app: App, lane: number, style: number, name: string): HTMLElement {
  const kind = app.tracks.laneKind.get(lane)?.kind;
  if (name === "" || kind === undefined || !hasNameColour(kind, style)) return patch(app, style);
  return patch(app, style, nameColour(name));
}

/** Patch with the colour of a style or of a colour number, as the timeline draws it. */
export function patch(app: App, style: number, name?: number): HTMLElement {
  const { palette } = app;
  const isMark = style === Style.mark;
  const own = name === undefined ? 0 : (palette.names[name] ?? 0);
  const ofName = isMark ? markColour(palette, own) : own;
  const colour = name === undefined ? (palette.states[style] ?? "") : css(ofName);
  const edge = name === undefined ? palette.edges[style] : isMark ? ofName : palette.nameEdges[name];
  const inner = el("i");
  inner.style.backgroundColor = colour;
  inner.style.borderBottomColor = css(edge ?? 0);
  const swatch = el("span", { class: "swatch", attributes: { "aria-hidden": "true" } }, inner);
  if (LOW.includes(style)) swatch.classList.add("low");
  if (style === Style.counter) swatch.classList.add("line");
  if (style === Style.density) swatch.classList.add("bars-of");
  if (HATCHED.includes(style)) {
    inner.style.backgroundColor = "";
    inner.style.borderBottomColor = "transparent";
    inner.style.backgroundImage = `repeating-linear-gradient(135deg, ${colour} 0 2px, transparent 2px 5px)`;
  } else if (style === Style.runnablePreempted) {
    inner.style.backgroundImage = `repeating-linear-gradient(135deg, ${palette.stripes}80 0 1.3px, transparent 1.3px 4px)`;
  } else if (style === Style.lateJob) {
    inner.style.backgroundImage = `conic-gradient(from 135deg at 50% 4px, transparent 0 0), conic-gradient(from -45deg at 50% 4px, ${palette.ground} 90deg, transparent 0)`;
    inner.style.backgroundSize = "6px 100%";
  }
  return swatch;
}

function line(swatch: HTMLElement, word: string, meaning: string): HTMLElement {
  return el("li", { title: `${word}: ${meaning}` }, swatch, el("b", { text: word }), el("span", { text: meaning }));
}

function named(app: App): HTMLElement {
  const swatch = el("span", { class: "swatch several", attributes: { "aria-hidden": "true" } });
  for (const at of [0, 3, 8]) {
    const part = el("i");
    part.style.backgroundColor = app.palette.nameTexts[at] ?? "";
    part.style.borderBottomColor = css(app.palette.nameEdges[at] ?? 0);
    swatch.append(part);
  }
  return line(swatch, "Running thread", "one colour per name");
}

function sampled(app: App): HTMLElement {
  const swatch = patch(app, Style.running);
  swatch.classList.add("sampled");
  return line(swatch, "Sampled", "only its beginning was read so far");
}

function several(app: App): HTMLElement {
  const swatch = patch(app, Style.running);
  swatch.classList.add("faded");
  return line(swatch, "Faded", "merged slices, narrower than a pixel: zoom in");
}

/** Marks that are drawn over slices. */
function marks(app: App): HTMLElement[] {
  const { palette } = app;
  const made = (className: string, style: Partial<CSSStyleDeclaration>): HTMLElement => {
    const swatch = el("span", { class: `swatch ${className}`, attributes: { "aria-hidden": "true" } }, el("i"));
    Object.assign((swatch.firstElementChild as HTMLElement).style, style);
    return swatch;
  };
  return [
    line(made("arrow", { color: palette.arrow }), "Arrow", "wakeup, from waker to woken thread; or the next step of a flow"),
    line(made("framed", { borderColor: palette.accent, borderWidth: "2px" }), "Framed", "selected slice; thin: slice under the pointer"),
    line(made("upright", { borderColor: palette.accent }), "Upright line", "search hit or table row; with a flag: a note"),
    line(made("area", { backgroundColor: palette.accent }), "Tinted", "measured area"),
    line(made("current", { borderColor: palette.accent }), "Bar at a name", "current track, on which keys act"),
  ];
}

/** Creates the legend. The brief one has words only, with their meanings as tooltips. */
export function legend(app: App, brief = false): HTMLElement {
  const root = el("div", { class: brief ? "legend brief" : "legend" });
  for (const [title, styles] of GROUPS) {
    const list = el("ul");
    if (title === "CPUs") list.append(named(app));
    for (const style of styles) {
      const [word, meaning] = STATE_WORDS[style] ?? ["", ""];
      list.append(line(patch(app, style), word, meaning));
    }
    if (title === "CPUs") list.append(several(app), sampled(app));
    root.append(el("section", {}, el("h3", { text: title }), list));
  }
  root.append(el("section", {}, el("h3", { text: "Marks" }), el("ul", {}, ...marks(app))));
  return root;
}
