// Colours: contrasts by WCAG 2.2, and distances with each kind of colour blindness.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { contrast, inkOn, pack, type Palette, paletteOf } from "../../src/draw/colours";
import { Style } from "../../src/data/wire";

type Matrix = [number, number, number][];

/** Linear light as seen without one kind of cones, at severity 1 (Machado, Oliveira, Fernandes
 * 2009). */
const EYES: Record<string, Matrix> = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

function linear(colour: string): number[] {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
}

/** CIE L*a*b*, D65. */
function lab([r = 0, g = 0, b = 0]: number[]): number[] {
  const f = (value: number): number => (value > 0.008856 ? Math.cbrt(value) : 7.787 * value + 16 / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** Distance of two colours (ΔE, 1976). Colours with a distance of 2 are just distinguishable side
 * by side. */
function difference(one: string, other: string, eye: Matrix): number {
  const seen = (colour: string): number[] => {
    const light = linear(colour);
    return lab(eye.map((row) => Math.min(1, Math.max(0, row.reduce((sum, part, at) => sum + part * (light[at] ?? 0), 0)))));
  };
  const [a, b] = [seen(one), seen(other)];
  return Math.hypot(...a.map((value, at) => value - (b[at] ?? 0)));
}

/** States that are neighbours on a lane or above each other. */
const BESIDE: [keyof typeof Style, keyof typeof Style][] = [
  ["running", "runnable"], ["running", "runnablePreempted"], ["runnable", "runnablePreempted"], ["running", "sleeping"], ["runnable", "sleeping"],
  ["runnablePreempted", "sleeping"], ["running", "uninterruptible"], ["runnable", "uninterruptible"], ["runnablePreempted", "uninterruptible"], ["sleeping", "uninterruptible"],
  ["running", "stopped"], ["sleeping", "stopped"], ["uninterruptible", "stopped"], ["runnable", "created"], ["running", "created"], ["interrupt", "softirq"],
  ["job", "lateJob"], ["lateJob", "runnablePreempted"], ["lost", "overwritten"], ["density", "lost"],
];
const LEAST_DIFFERENCE = 20;

describe.each([paletteOf("light"), paletteOf("dark")])("colours in the $theme", (palette: Palette) => {
  const grounds = [palette.ground, palette.stripe, palette.current];
  it.each(Object.entries(EYES))("tell states beside each other apart to eyes with %s", (_, eye) => {
    for (const [one, other] of BESIDE) {
      const apart = difference(palette.states[Style[one]] ?? "", palette.states[Style[other]] ?? "", eye);
      expect(apart, `${one} and ${other}`).toBeGreaterThanOrEqual(LEAST_DIFFERENCE);
    }
  });

  it("contrast with their backgrounds, or have an edge that does", () => {
    const drawn = palette.states.map((_, style) => style).filter((style) => style !== Style.idle);
    for (const ground of grounds) {
      for (const style of drawn) expect(contrast(palette.edges[style] ?? 0, pack(ground)), `${style} on ${ground}`).toBeGreaterThanOrEqual(3);
      for (const edge of palette.nameEdges) expect(contrast(edge, pack(ground))).toBeGreaterThanOrEqual(3);
      // Lines of patterns have no edge.
      for (const style of [Style.unknown, Style.lost, Style.overwritten, Style.counter]) {
        expect(contrast(pack(palette.states[style] ?? ""), pack(ground)), `${style} on ${ground}`).toBeGreaterThanOrEqual(3);
      }
    }
  });

  it("of texts are readable on their backgrounds", () => {
    for (const ground of grounds) {
      expect(contrast(pack(palette.text), pack(ground))).toBeGreaterThan(7);
      for (const text of [palette.muted, palette.accent]) expect(contrast(pack(text), pack(ground)), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
  });

  it("of texts are readable on slices", () => {
    for (const { packed, names } of palette.shades) {
      for (const colour of [...packed, ...names]) expect(contrast(colour, pack(inkOn(colour)))).toBeGreaterThanOrEqual(4.5);
    }
  });

  it("of the page's texts are readable on all their backgrounds", () => {
    const sheet = readFileSync(new URL("../../src/style.css", import.meta.url), "utf8");
    const block = (palette.theme === "light" ? /:root \{([^}]*)\}/ : /:root\[data-theme="dark"\] \{([^}]*)\}/).exec(sheet)?.[1] ?? "";
    const value = (name: string): string => new RegExp(`--${name}: (#[0-9a-f]{6});`).exec(block)?.[1] ?? "";
    for (const text of ["text", "muted", "accent", "lost"]) {
      for (const ground of ["ground", "raised", "sunken", "accent-soft"]) {
        expect(contrast(pack(value(text)), pack(value(ground))), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
      }
    }
    for (const name of ["ground", "text", "muted", "accent"] as const) expect(value(name), name).toBe(palette[name]);
  });
});
