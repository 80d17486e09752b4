// Formats times and numbers.

/** Separator of groups of three digits: a narrow space without line break. */
const GROUP = "\u202f";
const SECOND = 1e9;

/** Clock of the ruler. */
export type Clock = "relative" | "local" | "utc";
export const CLOCKS: readonly Clock[] = ["relative", "local", "utc"];

const UNITS: readonly [number, string][] = [
  [SECOND, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** Formats a duration with its unit and four significant digits: `12.35 µs`. */
export function duration(nanoseconds: number): string {
  const size = Math.abs(nanoseconds);
  if (size >= 3600 * SECOND) return `${(nanoseconds / (3600 * SECOND)).toFixed(2)}${GROUP}h`;
  if (size >= 60 * SECOND) {
    const minutes = Math.trunc(nanoseconds / (60 * SECOND));
    const seconds = Math.abs(nanoseconds - minutes * 60 * SECOND) / SECOND;
    return `${minutes}${GROUP}min${GROUP}${seconds.toFixed(1)}${GROUP}s`;
  }
  for (const [unit, name] of UNITS) {
    if (size < unit && unit > 1) continue;
    const value = nanoseconds / unit;
    if (unit === 1) return `${Math.round(value)}${GROUP}ns`;
    const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.max(1, Math.abs(value)))));
    return `${trimZeros(value.toFixed(digits))}${GROUP}${name}`;
  }
  return `0${GROUP}ns`;
}

/** Text of a duration that may be unknown. */
export function durationOrDash(nanoseconds: number | null): string {
  return nanoseconds === null ? "–" : duration(nanoseconds);
}

function trimZeros(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Formats a number with its digits in groups: `1 234 567`. */
export function grouped(value: number): string {
  const text = Math.round(value).toString();
  return text.replace(/\B(?=(\d{3})+$)/g, GROUP);
}

/** Formats a size in bytes. */
export function sizeText(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let [size, unit] = [bytes, 0];
  while (size >= 999.5 && unit < units.length - 1) [size, unit] = [size / 1000, unit + 1];
  const text = unit === 0 || size >= 99.5 ? Math.round(size).toString() : size.toPrecision(2);
  return `${text} ${units[unit] ?? ""}`;
}

/** Formats a quantity with enough digits for a range of width `apart`: `0.25`, `1 000 010`. */
export function quantity(value: number, apart = 0): string {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return grouped(value);
  if (!Number.isFinite(value)) return "–";
  if (size >= 1e15 || (size > 0 && size < 1e-6 && !(apart > 1e-6))) return value.toExponential(3);
  const unit = apart > 0 && Number.isFinite(apart) ? Math.min(apart, Math.max(size, apart / 1000)) : size;
  const digits = Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(unit))));
  const [whole = "0", part = ""] = trimZeros(value.toFixed(digits)).split(".");
  const sign = whole.startsWith("-") ? "-" : "";
  const text = sign + grouped(Math.abs(Number(whole)));
  return part === "" ? text : `${text}.${part}`;
}

/** A share of a whole: `12.3 %`, and never 0 % of something that is there. */
export function percent(part: number, whole: number): string {
  if (whole <= 0 || part <= 0) return `0${GROUP}%`;
  const value = (part / whole) * 100;
  if (value < 0.1) return `<${GROUP}0.1${GROUP}%`;
  return `${value >= 99.95 ? "100" : value.toFixed(1)}${GROUP}%`;
}

function fraction(nanoseconds: number, digits: number): string {
  if (digits <= 0) return "";
  const text = nanoseconds.toString().padStart(9, "0").slice(0, digits);
  return `.${text.replace(/(\d{3})(?=\d)/g, `$1${GROUP}`)}`;
}

/** Seconds after the trace's begin: `1.234 567 890 s`. */
export function relative(nanoseconds: number, digits = 9): string {
  const negative = nanoseconds < 0;
  const size = Math.round(Math.abs(nanoseconds));
  const seconds = Math.floor(size / SECOND);
  return `${negative ? "−" : ""}${grouped(seconds)}${fraction(size - seconds * SECOND, digits)}${GROUP}s`;
}

export interface ClockBase {
  /** Nanoseconds since the epoch at time 0. */
  base: bigint;
  /** Begin of the trace: zero of the relative clock. */
  begin: number;
  /** Offset of the wall clock from UTC, in seconds. */
  ahead: number;
}

/** Formats a time of day: `14:05:09.123 456 789`. */
export function timeOfDay(clock: ClockBase, nanoseconds: number, utc: boolean, digits = 9): string {
  const total = clock.base + BigInt(Math.round(nanoseconds)) + BigInt(utc ? 0 : clock.ahead) * 1_000_000_000n;
  const second = 1_000_000_000n;
  const rest = ((total % second) + second) % second;
  const seconds = Number((total - rest) / second);
  const moment = new Date(seconds * 1000).toISOString();
  return `${moment.slice(11, 19)}${fraction(Number(rest), digits)}${utc && digits >= 9 ? `${GROUP}UTC` : ""}`;
}

/** Formats the date of a time. */
export function day(clock: ClockBase, nanoseconds: number, utc: boolean): string {
  const total = clock.base + BigInt(Math.round(nanoseconds)) + BigInt(utc ? 0 : clock.ahead) * 1_000_000_000n;
  return new Date(Number(total / 1_000_000n)).toISOString().slice(0, 10);
}

/** Formats a time by a clock. */
export function moment(clock: ClockBase, kind: Clock, nanoseconds: number, digits = 9): string {
  if (kind === "relative") return relative(nanoseconds - clock.begin, digits);
  return timeOfDay(clock, nanoseconds, kind === "utc", digits);
}

const LONG_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];

/** Distance of the ruler's marks, at least `least` nanoseconds. */
export function rulerStep(least: number): number {
  if (least > SECOND) {
    const step = LONG_STEPS.find((seconds) => seconds * SECOND >= least);
    return step === undefined ? Math.ceil(least / (86400 * SECOND)) * 86400 * SECOND : step * SECOND;
  }
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  for (const factor of [1, 2, 5, 10]) if (power * factor >= least) return power * factor;
  return power * 10;
}

/** Decimal places of a second that distinguish marks of this distance. */
export function digitsFor(step: number): number {
  return Math.min(9, Math.max(0, 9 - Math.floor(Math.log10(Math.max(1, step)) + 1e-9)));
}

export interface Ruler {
  /** Time that short marks count from. */
  anchor: number;
  step: number;
  /** Whether marks are labelled by their distance from the anchor. */
  short: boolean;
}

/** Marks of a ruler: about one every `pixels` pixels. */
export function rulerFor(begin: number, end: number, width: number, pixels: number, zero: number): Ruler {
  const step = rulerStep(((end - begin) / Math.max(1, width)) * pixels);
  const short = step < 1e6;
  const coarse = short ? rulerStep((end - begin) * 1.01) * 10 : step;
  const unit = short ? Math.max(coarse, step * 10) : step;
  return { anchor: zero + Math.max(0, Math.floor((begin - zero) / unit)) * unit, step, short };
}
