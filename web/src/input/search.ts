// Search box: finds the next or previous event whose name or value contains a text, or that a
// filter accepts.

import { api, reason, wasAborted } from "../data/api";
import type { App } from "../app";
import { byId, shorten } from "../dom";
import { moment } from "../data/time";
import type { SearchAnswer, SearchHit } from "../data/wire";

export class Search {
  private readonly input = byId<HTMLInputElement>("search");
  private readonly status = byId("search-status");
  private request: AbortController | null = null;
  private hit: SearchHit | null = null;

  constructor(private readonly app: App) {
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") void this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.stop();
        this.input.blur();
      } else return;
      event.preventDefault();
    });
    this.input.addEventListener("input", () => {
      this.stop();
      this.hit = null;
      app.searchText = this.input.value.trim();
      app.draw();
    });
    app.on("link", () => {
      if (this.input.value.trim() === app.searchText) return;
      this.input.value = app.searchText;
      this.hit = null;
    });
    app.on("shift", () => (this.hit = null));
    byId("search-next").addEventListener("click", () => void this.go(1));
    byId("search-previous").addEventListener("click", () => void this.go(-1));
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  /** Cancels the search. A later one continues from the last hit. */
  private stop(): void {
    this.request?.abort();
    this.report("");
    this.status.dataset["state"] = "done";
  }

  private report(text: string): void {
    this.status.classList.remove("bad");
    this.status.textContent = text;
    this.status.title = text;
  }

  /** Goes to the next or the previous hit. */
  async go(dir: 1 | -1): Promise<void> {
    const text = this.input.value.trim();
    if (text === "") {
      this.focus();
      return;
    }
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    this.report("searching…");
    this.status.dataset["state"] = "busy";
    let from = this.start(dir);
    try {
      for (;;) {
        const hit = await api.search(text, from, dir, request.signal);
        if (request.signal.aborted) return;
        if (!("none" in hit) || hit.continue === undefined) {
          this.show(hit, dir);
          return;
        }
        from = hit.continue;
        this.report(`searching, at ${moment(this.app.clockBase, this.app.clock, from, 3)}…`);
      }
    } catch (error) {
      if (!wasAborted(error)) this.report(reason(error));
    } finally {
      if (this.request === request) this.status.dataset["state"] = "done";
    }
  }

  /** Start of the search: the last hit, or the edge of the screen. */
  private start(dir: 1 | -1): number {
    const { view, info } = this.app;
    // The server searches strictly after or before a time.
    if (this.hit !== null) return this.hit.time;
    const edge = dir === 1 ? view.begin : view.end;
    return Math.round(Math.min(Math.max(edge, info.begin), info.end)) - dir;
  }

  /** Message for no hit, which depends on the start of the search. */
  private noHit(dir: 1 | -1): string {
    if (this.hit !== null) return dir === 1 ? "no later hit" : "no earlier hit";
    const { view, info } = this.app;
    if (dir === 1) return view.begin <= info.begin ? "no hit" : "no hit from here on";
    return view.end >= info.end ? "no hit" : "no hit up to here";
  }

  private show(hit: SearchAnswer, dir: 1 | -1): void {
    if ("none" in hit) {
      this.report(hit.bad ?? this.noHit(dir));
      this.status.classList.toggle("bad", hit.bad !== undefined);
      return;
    }
    const { app } = this;
    this.hit = hit;
    app.cursor = hit.time;
    this.report(`${shorten(hit.name, 120)} at ${moment(app.clockBase, app.clock, hit.time)}`);
    const lane = hit.lane ?? -1;
    const track = app.tracks.laneTrack.get(lane);
    if (track !== undefined) app.jump(lane, hit.time);
    else app.view.show(hit.time, hit.time);
    app.draw();
  }
}
