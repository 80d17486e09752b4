// Fuzzy search: finds names that contain some letters in order, as editors find files.

export interface Match {
  score: number;
  /** Positions of the matched characters. */
  places: number[];
}

/** Match of a name with the typed text; null if there is none. */
export function match(typed: string, name: string): Match | null {
  const places: number[] = [];
  const score = scoreOf(typed.toLowerCase(), name.toLowerCase(), places);
  return score === null ? null : { score, places };
}

/** Score of lower-case texts. Positions are collected only for the few matches that are shown. */
function scoreOf(needle: string, hay: string, places: number[] | null): number | null {
  if (needle === "") return 0;
  const whole = hay.indexOf(needle);
  if (whole >= 0) {
    if (places !== null) for (let at = 0; at < needle.length; at++) places.push(whole + at);
    return 1000 + (startsWord(hay, whole) ? 200 : 0) - whole - hay.length * 0.1;
  }
  let [score, from, count] = [0, 0, 0];
  for (const letter of needle) {
    if (letter === " ") continue;
    const at = hay.indexOf(letter, from);
    if (at < 0) return null;
    const near = at === from && count > 0;
    score += near ? 12 : startsWord(hay, at) ? 8 : 1;
    places?.push(at);
    count += 1;
    from = at + 1;
  }
  return score - hay.length * 0.1;
}

function startsWord(name: string, at: number): boolean {
  if (at === 0) return true;
  const code = name.charCodeAt(at - 1);
  return !((code >= 97 && code <= 122) || (code >= 48 && code <= 57));
}

export interface Ranked<T> {
  item: T;
  match: Match;
}

/** Matches in a list. */
export interface Found<T> {
  /** The best matches, best first; equal ones keep their order. */
  best: Ranked<T>[];
  /** All matches. A longer text can match no others. */
  all: readonly T[];
}

/** Finds all matches in a list, and the best `most` of them. */
export function rank<T>(typed: string, items: readonly T[], nameOf: (item: T) => string, most: number): Found<T> {
  const needle = typed.toLowerCase();
  const ranked = (item: T): Ranked<T> => ({ item, match: match(typed, nameOf(item)) ?? { score: 0, places: [] } });
  if (needle === "") return { best: items.slice(0, most).map(ranked), all: items };
  const [all, best]: [T[], { item: T; score: number }[]] = [[], []];
  for (const item of items) {
    const score = scoreOf(needle, nameOf(item).toLowerCase(), null);
    if (score === null) continue;
    all.push(item);
    if (best.length === most && score <= (best.at(-1)?.score ?? 0)) continue;
    let at = best.length;
    while (at > 0 && (best[at - 1]?.score ?? 0) < score) at -= 1;
    best.splice(at, 0, { item, score });
    if (best.length > most) best.pop();
  }
  return { best: best.map(({ item }) => ranked(item)), all };
}
