// Finds names by letters that stand in them in order, as editors find files.

export interface Match {
  score: number;
  /** Which characters of the name were meant. */
  places: number[];
}

/** How well a name answers to what was typed; null if it doesn't. */
export function match(typed: string, name: string): Match | null {
  const [needle, hay] = [typed.toLowerCase(), name.toLowerCase()];
  if (needle === "") return { score: 0, places: [] };
  const whole = hay.indexOf(needle);
  if (whole >= 0) {
    const places = Array.from(needle, (_, at) => whole + at);
    return { score: 1000 + (startsWord(hay, whole) ? 200 : 0) - whole - hay.length * 0.1, places };
  }
  const places: number[] = [];
  let [score, from] = [0, 0];
  for (const letter of needle) {
    if (letter === " ") continue;
    const at = hay.indexOf(letter, from);
    if (at < 0) return null;
    const near = at === from && places.length > 0;
    score += near ? 12 : startsWord(hay, at) ? 8 : 1;
    places.push(at);
    from = at + 1;
  }
  return { score: score - hay.length * 0.1, places };
}

function startsWord(name: string, at: number): boolean {
  return at === 0 || /[^a-z0-9]/.test(name[at - 1] ?? " ");
}

export interface Ranked<T> {
  item: T;
  match: Match;
}

/** The best so many of a list, best first; equals keep their order. */
export function rank<T>(typed: string, items: readonly T[], nameOf: (item: T) => string, most: number): Ranked<T>[] {
  const found: Ranked<T>[] = [];
  for (const item of items) {
    const answer = match(typed, nameOf(item));
    if (answer !== null) found.push({ item, match: answer });
  }
  if (typed !== "") found.sort((a, b) => b.match.score - a.match.score);
  return found.slice(0, most);
}
