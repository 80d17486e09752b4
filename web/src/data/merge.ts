// Notes of several who write them at the same time.

import type { Note } from "./wire";

/** What makes a note the same as another one. */
function keyOf({ time, text }: Note): string {
  return JSON.stringify([time, text]);
}

export function keysOf(notes: readonly Note[]): Set<string> {
  return new Set(notes.map(keyOf));
}

/** The notes of here and of elsewhere, both made of those with these keys: what was added in
 * either place is there, what was removed in either isn't. */
export function mergeNotes(before: ReadonlySet<string>, here: readonly Note[], elsewhere: readonly Note[]): Note[] {
  const [mine, theirs] = [keysOf(here), keysOf(elsewhere)];
  const kept = here.filter((note) => theirs.has(keyOf(note)) || !before.has(keyOf(note)));
  const added = elsewhere.filter((note) => !mine.has(keyOf(note)) && !before.has(keyOf(note)));
  return [...kept, ...added].sort((a, b) => a.time - b.time);
}
