// Merge of notes that several pages edit at the same time.

import type { Note } from "./wire";

/** Identity of a note: its time and text. */
function keyOf({ time, text }: Note): string {
  return JSON.stringify([time, text]);
}

export function keysOf(notes: readonly Note[]): Set<string> {
  return new Set(notes.map(keyOf));
}

/** Merges the notes of this page with those of another. `before` has the keys of the version that
 * both started from. Additions and removals of either side apply. */
export function mergeNotes(before: ReadonlySet<string>, here: readonly Note[], elsewhere: readonly Note[]): Note[] {
  const [mine, theirs] = [keysOf(here), keysOf(elsewhere)];
  const kept = here.filter((note) => theirs.has(keyOf(note)) || !before.has(keyOf(note)));
  const added = elsewhere.filter((note) => !mine.has(keyOf(note)) && !before.has(keyOf(note)));
  return [...kept, ...added].sort((a, b) => a.time - b.time);
}
