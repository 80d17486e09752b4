// Dialog that finds a track by letters of its name.

import type { App } from "../app";
import { byId, el, fill } from "../dom";
import { rank, type Ranked } from "../data/fuzzy";
import type { Track } from "../data/tracks";

const MAX_RESULTS = 60;

export class Finder {
  private readonly dialog = byId<HTMLDialogElement>("finder");
  private readonly input = byId<HTMLInputElement>("finder-input");
  private readonly list = byId("finder-list");
  private found: Ranked<Track>[] = [];
  private at = 0;
  /** Text, tracks and all matches of the last search. */
  private last: { typed: string; stamp: number; all: readonly Track[] } = { typed: "", stamp: -1, all: [] };

  constructor(private readonly app: App) {
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("close", () => (this.last = { typed: "", stamp: -1, all: [] }));
  }

  open(): void {
    this.input.value = "";
    this.dialog.showModal();
    this.search();
    this.input.focus();
  }

  private search(): void {
    const [typed, { stamp, all }] = [this.input.value, this.app.tracks];
    // A longer text matches only tracks that matched the shorter one.
    const isNarrower = this.last.stamp === stamp && typed.startsWith(this.last.typed);
    const found = rank(typed, isNarrower ? this.last.all : [...all.values()], (track) => track.title, MAX_RESULTS);
    this.last = { typed, stamp, all: found.all };
    this.found = found.best;
    this.at = 0;
    this.draw();
  }

  private draw(): void {
    const rows = this.found.map(({ item, match }, at) => {
      const name = el("span", { class: "found" });
      const places = new Set(match.places);
      // Matched letters are bold.
      const letters = item.title.slice(0, 200);
      for (let letter = 0; letter < letters.length; letter++) {
        name.append(places.has(letter) ? el("b", { text: letters[letter] ?? "" }) : (letters[letter] ?? ""));
      }
      const attributes = { id: `found-${at}`, role: "option", "aria-selected": String(at === this.at) };
      const row = el("li", { class: at === this.at ? "chosen" : "", data: { track: String(item.id) }, attributes }, el("span", { class: `kind is-${item.kind}`, text: item.kind }), name);
      row.addEventListener("click", () => this.take(at, false));
      return row;
    });
    if (rows.length === 0) rows.push(el("li", { class: "muted", text: "no such track" }));
    fill(this.list, ...rows);
    this.input.setAttribute("aria-activedescendant", this.found.length > 0 ? `found-${this.at}` : "");
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
  }

  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Enter") this.take(this.at, event.shiftKey);
    else if (event.key === "ArrowDown") this.step(1);
    else if (event.key === "ArrowUp") this.step(-1);
    else return;
    event.preventDefault();
  }

  private step(by: number): void {
    this.at = Math.max(0, Math.min(this.found.length - 1, this.at + by));
    this.draw();
  }

  private take(at: number, pin: boolean): void {
    const track = this.found[at]?.item;
    this.dialog.close();
    if (track === undefined) return;
    if (pin && !this.app.tracks.pinned.includes(track.id)) this.app.tracks.pin(track.id);
    this.app.tracks.layout();
    this.app.reveal(track.id);
    this.app.notify("tracks");
  }
}
