// Tab "Notes": bookmarks and remarks, saved next to the trace.

import type { App } from "../app";
import { button, byId, el, fill, link } from "../dom";
import type { Page } from "./panel";
import { duration, moment } from "../data/time";
import type { Note, TraceOverview } from "../data/wire";

export class Notes implements Page {
  private readonly root = byId("page-notes");
  /** Note that is being edited. */
  private edited: Note | null = null;

  constructor(private readonly app: App) {
    app.on("notes", () => this.show());
    app.on("clock", () => this.show());
  }

  /** Adds a note to the area, the selection, the time at the pointer, or the middle of the
   * screen. */
  add(): void {
    const { app } = this;
    const { area, selected, hover, view } = app;
    const note: Note = { time: Math.round(hover?.time ?? view.begin + view.span / 2), text: "" };
    if (area !== null) Object.assign(note, { time: area.begin, end: area.end });
    else if (selected !== null) {
      note.time = selected.begin;
      note.text = selected.label;
      const track = app.tracks.laneTrack.get(selected.lane);
      if (track !== undefined) note.track = track;
    }
    app.notes.push(note);
    this.edited = note;
    app.openTab("notes");
    void app.saveNotes();
  }

  show(): void {
    if (this.root.hidden) return;
    const { app } = this;
    const add = button("Add a note here", "M", () => this.add());
    const words = el("p", { class: "lead" }, `${placeOf(app.info)} `, el("kbd", { text: "M" }), " adds a note at the area, the selected slice, or the pointer. ");
    words.append(add);
    const table = el("table", { class: "list notes" });
    for (const note of app.notes) table.append(this.row(note));
    fill(this.root, words, table);
    const input = [...table.querySelectorAll("input")].find((_, at) => app.notes[at] === this.edited);
    // The list may be redrawn while a note is being edited.
    if (input !== undefined) input.focus();
  }

  private row(note: Note): HTMLElement {
    const { app } = this;
    const go = (): void => {
      if (note.track !== undefined) app.reveal(note.track);
      if (note.end !== undefined && note.end > note.time) app.view.fit(note.time, note.end);
      else app.view.show(note.time, note.time);
      app.cursor = note.time;
      app.draw();
    };
    const input = el("input", { attributes: { type: "text", placeholder: "what is here?", maxlength: "2000", "aria-label": "Note" } });
    input.value = note.text;
    input.addEventListener("input", () => (note.text = input.value));
    input.addEventListener("change", () => {
      this.edited = null;
      void app.saveNotes();
    });
    const drop = button("✕", "Remove", () => {
      app.notes = app.notes.filter((other) => other !== note);
      void app.saveNotes();
    });
    const length = note.end === undefined ? "" : duration(note.end - note.time);
    return el("tr", {}, el("td", {}, link(moment(app.clockBase, app.clock, note.time), "Go there", go)), el("td", { class: "number", text: length }), el("td", { class: "words" }, input), el("td", {}, drop));
  }
}

/** Sentence that names the folder of the notes. */
function placeOf(info: TraceOverview): string {
  return info.kept ? `Notes are saved in ${info.kept}.` : "Notes can't be saved: no folder is writable.";
}
