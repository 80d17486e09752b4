// Colours of the page: those of states after Okabe and Ito, those of threads by their names.
//
// Meaning never depends on colour alone: running is high, sleeping is low, losses are hatched,
// preempted threads have stripes, and late jobs have teeth. Neighbouring kinds can be distinguished
// with each kind of colour blindness (tests simulate that). Slices that are too pale for their
// background have an edge below.

import { STATE_WORDS, Style } from "../data/wire";

export type Theme = "light" | "dark";

/** Colour in the memory layout of canvases: bytes R, G, B, A, as one little-endian number. */
export type Packed = number;

export interface Palette {
  theme: Theme;
  /** CSS colours of everything but slices. */
  ground: string;
  stripe: string;
  current: string;
  line: string;
  text: string;
  muted: string;
  accent: string;
  lost: string;
  overwritten: string;
  counter: string;
  /** Strength of the tint below a counter's line. */
  counterTint: number;
  density: string;
  arrow: string;
  /** Colour of the stripes over slices. */
  stripes: string;
  /** By style. */
  states: string[];
  /** The same, packed. */
  packed: Uint32Array;
  names: Uint32Array;
  edges: Uint32Array;
  nameEdges: Uint32Array;
  nameTexts: string[];
  /** Colours of samples, of single slices, and of merged slices. */
  shades: [Shade, Shade, Shade];
}

/** Colours of slices: by style, and by colour number of the name. */
export interface Shade {
  packed: Uint32Array;
  names: Uint32Array;
  /** Line below a slice: its colour, or a similar one with enough contrast to every background. */
  edges: Uint32Array;
  nameEdges: Uint32Array;
}

const NAMES = 24;
/** Share of the background in merged slices, which are faded because their coverage is unknown. */
const MERGED = 0.18;
/** Share of the background in samples, of which only the beginning was read. */
const SAMPLED = 0.5;

const LIGHT_STATES: Record<number, string> = {
  [Style.unknown]: "#8f8c86",
  [Style.idle]: "#ecebe6",
  [Style.running]: "#1f9a70",
  [Style.runnable]: "#f2b52a",
  [Style.runnablePreempted]: "#a33405",
  [Style.sleeping]: "#c3d3de",
  [Style.uninterruptible]: "#8d5fa8",
  [Style.stopped]: "#55524c",
  [Style.created]: "#d8d28a",
  [Style.syscall]: "#6aa5d8",
  [Style.interrupt]: "#6d2f6e",
  [Style.softirq]: "#c48fc6",
  [Style.span]: "#5aa9c9",
  [Style.function]: "#8fb3d9",
  [Style.mark]: "#3b4657",
  [Style.lost]: "#d0202e",
  [Style.overwritten]: "#8f8c86",
  [Style.job]: "#2a8592",
  [Style.lateJob]: "#e8660f",
  [Style.counter]: "#2f6f9f",
  [Style.density]: "#7d92a4",
};

const DARK_STATES: Record<number, string> = {
  [Style.unknown]: "#7a808a",
  [Style.idle]: "#20252d",
  [Style.running]: "#2fae83",
  [Style.runnable]: "#f6d06a",
  [Style.runnablePreempted]: "#d44c12",
  [Style.sleeping]: "#4f6b80",
  [Style.uninterruptible]: "#a57fc8",
  [Style.stopped]: "#c6cbd2",
  [Style.created]: "#a5a04f",
  [Style.syscall]: "#4585bd",
  [Style.interrupt]: "#d493cc",
  [Style.softirq]: "#86548c",
  [Style.span]: "#3d8caf",
  [Style.function]: "#56799f",
  [Style.mark]: "#c9d2de",
  [Style.lost]: "#ff5a5f",
  [Style.overwritten]: "#7c828c",
  [Style.job]: "#3a97a4",
  [Style.lateJob]: "#ff9d52",
  [Style.counter]: "#6bb0e0",
  [Style.density]: "#6a8196",
};

/** Name of a style. */
export function styleWord(style: number): string {
  return STATE_WORDS[style]?.[0] ?? "Unknown";
}

/** Packs `#rrggbb`. */
export function pack(colour: string): Packed {
  const value = Number.parseInt(colour.slice(1, 7), 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >>> 16)) >>> 0;
}

/** Mixes two packed colours: `share` of the second. */
export function mix(first: Packed, second: Packed, share: number): Packed {
  return mixParts(first, second, share <= 0 ? 0 : share >= 1 ? 256 : (share * 256) | 0) >>> 0;
}

/** Mixes `part` in 256 of the second colour. The result is signed, which avoids allocations. */
export function mixParts(first: Packed, second: Packed, part: number): number {
  const rest = 256 - part;
  const even = ((Math.imul(first & 0xff00ff, rest) + Math.imul(second & 0xff00ff, part)) >>> 8) & 0xff00ff;
  const odd = (Math.imul((first >>> 8) & 0xff, rest) + Math.imul((second >>> 8) & 0xff, part)) & 0xff00;
  return 0xff000000 | even | odd;
}

/** Hash of a name that never changes (FNV-1a). */
export function hash(name: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < name.length; at++) {
    value ^= name.charCodeAt(at);
    value = Math.imul(value, 0x01000193);
  }
  // The low bits alone distinguish short names badly.
  value ^= value >>> 15;
  value = Math.imul(value, 0x2c1b3c6d);
  return (value ^ (value >>> 13)) >>> 0;
}

/** Colour number of a name without its trailing number, so that threads of a pool share it. */
export function nameColour(name: string): number {
  return hash(name.replace(/[/:-]?\d+(:\d+)?$/, "")) % NAMES;
}

/** Converts OKLCH to `#rrggbb`: equally light to the eye, whatever the hue. */
export function oklch(lightness: number, chroma: number, hue: number): string {
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const bytes = linear.map((value) => {
    const bound = Math.min(1, Math.max(0, value));
    const encoded = bound <= 0.0031308 ? 12.92 * bound : 1.055 * bound ** (1 / 2.4) - 0.055;
    return Math.round(encoded * 255).toString(16).padStart(2, "0");
  });
  return `#${bytes.join("")}`;
}

function nameColours(theme: Theme): string[] {
  const light = theme === "light";
  return Array.from({ length: NAMES }, (_, at) => {
    // Adjacent numbers have distant hues, and every other one is darker.
    const hue = (at * 137.508 + 20) % 360;
    const lightness = (light ? 0.74 : 0.58) + (at % 2 === 0 ? 0.04 : -0.04);
    return oklch(lightness, light ? 0.095 : 0.085, hue);
  });
}

/** Backgrounds of rows: normal ones, headings, and the one that keys act on. */
const GROUNDS: Record<Theme, Pick<Palette, "ground" | "stripe" | "current">> = {
  light: { ground: "#fdfcfa", stripe: "#f5f3ee", current: "#f8f3e6" },
  dark: { ground: "#14181e", stripe: "#191e25", current: "#201f1e" },
};
/** Minimum contrast of graphics (WCAG 2.2, 1.4.11). */
const MIN_CONTRAST = 3;

/** Contrast of two packed colours, from 1 to 21. */
export function contrast(one: Packed, other: Packed): number {
  const [less = 0, more = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (more + 0.05) / (less + 0.05);
}

/** The colour, or the most similar one with enough contrast to all backgrounds. */
function edgeOf(colour: Packed, grounds: Packed[], light: boolean): Packed {
  const ink = pack(light ? "#000000" : "#ffffff");
  for (let part = 0; part < 256; part += 8) {
    const edge = mixParts(colour, ink, part) >>> 0;
    if (grounds.every((ground) => contrast(edge, ground) >= MIN_CONTRAST)) return edge;
  }
  return ink;
}

function make(theme: Theme): Palette {
  const light = theme === "light";
  const byStyle = light ? LIGHT_STATES : DARK_STATES;
  const states = Array.from({ length: 21 }, (_, style) => byStyle[style] ?? "#888888");
  const nameTexts = nameColours(theme);
  const idle = pack(byStyle[Style.idle] ?? "#888888");
  const grounds = Object.values(GROUNDS[theme]).map(pack);
  const shade = (share: number): Shade => {
    const paler = (colour: string): Packed => mix(pack(colour), idle, share);
    // Samples stay pale.
    const edge = (colour: string): Packed => (share === SAMPLED ? paler(colour) : edgeOf(pack(colour), grounds, light));
    return {
      packed: Uint32Array.from(states, paler),
      names: Uint32Array.from(nameTexts, paler),
      edges: Uint32Array.from(states, edge),
      nameEdges: Uint32Array.from(nameTexts, edge),
    };
  };
  const shades: Palette["shades"] = [shade(SAMPLED), shade(0), shade(MERGED)];
  return {
    theme,
    ...GROUNDS[theme],
    line: light ? "#e4e1d9" : "#262d36",
    text: light ? "#20242b" : "#e3e7ec",
    muted: light ? "#66635c" : "#9aa3af",
    accent: light ? "#855b0a" : "#e0b05a",
    lost: byStyle[Style.lost] ?? "#d00000",
    overwritten: byStyle[Style.overwritten] ?? "#888888",
    counter: byStyle[Style.counter] ?? "#888888",
    counterTint: light ? 0.13 : 0.15,
    density: byStyle[Style.density] ?? "#888888",
    arrow: light ? "#4a3d20" : "#e9d8b0",
    stripes: light ? "#ffffff" : "#14181e",
    states,
    ...shades[1],
    nameTexts,
    shades,
  };
}

const made: Partial<Record<Theme, Palette>> = {};

/** Palette of a theme, made on first use. */
export function paletteOf(theme: Theme): Palette {
  return (made[theme] ??= make(theme));
}

/** Relative luminance of a packed colour, from 0 to 1. */
export function luminance(colour: Packed): number {
  const part = (shift: number) => {
    const value = ((colour >>> shift) & 255) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(0) + 0.7152 * part(8) + 0.0722 * part(16);
}

const DARK_INK = pack("#000000");
const LIGHT_INK = pack("#ffffff");

/** Text colour with the better contrast: black or white. */
export function inkOn(colour: Packed): string {
  return contrast(colour, DARK_INK) >= contrast(colour, LIGHT_INK) ? "#000000" : "#ffffff";
}
