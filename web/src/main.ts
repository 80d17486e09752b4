// Starts the page: asks what is open, puts the parts together, keeps up with a trace that grows.

import { api, reason } from "./data/api";
import { App } from "./app";
import type { Channel } from "./data/channel";
import type { Theme } from "./draw/colours";
import { Detail } from "./panels/detail";
import { byId, fill } from "./dom";
import { Events } from "./panels/events";
import { Finder } from "./input/finder";
import { Flame } from "./panels/flame";
import { Header } from "./panels/header";
import { listen, type Parts } from "./input/keys";
import { legend } from "./panels/legend";
import * as link from "./data/link";
import { Minimap } from "./draw/minimap";
import { Names } from "./draw/names";
import { Notes } from "./panels/notes";
import { Panel } from "./panels/panel";
import { RulerBar } from "./draw/ruler";
import { Search } from "./input/search";
import { Selection } from "./panels/statistics";
import { Timeline } from "./draw/timeline";
import { Tooltip } from "./panels/tooltip";
import type { TraceInfo, WireTrack } from "./data/wire";

const POLL = 1000;
/** The same while a trace is read for the first time: what is looked at is read first. */
const POLL_READING = 250;
/** The same at first, when a small trace is about to be whole, and while nothing but channels is
 * known of a large one. */
const POLL_EARLY = 60;
const EARLY = 3000;
/** While nothing was looked at before its turn, new boxes come more seldom, and what was read
 * whole even more so; and new names of tracks, where there are no new lanes. */
const PROGRESS = 1000;
const WHOLE = 5000;
const NAMES = 10_000;
/** How long after a movement nothing is asked for that is drawn already. */
const STILL = 250;
/** The same of a trace that is read whole. */
const POLL_WHOLE = 5000;
const LINK_DELAY = 300;
/** When is said what an answer takes so long for. */
const LONG = 1000;
/** After so many questions without an answer, they are asked more seldom. */
const PATIENCE = 6;

/** What tests ask for; nothing else uses it. */
declare global {
  interface Window {
    tompion?: { app: App; timeline: Timeline; settled: () => boolean; there: () => boolean };
  }
}

class Page {
  private readonly app = new App();
  private readonly timeline = new Timeline(this.app);
  private readonly ruler = new RulerBar(this.app, this.timeline);
  private readonly names = new Names(this.app, this.timeline);
  private readonly minimap = new Minimap(this.app);
  private readonly panel = new Panel(this.app);
  private readonly flame = new Flame(this.app);
  private readonly finder = new Finder(this.app);
  private readonly tooltip = new Tooltip(this.app);
  private readonly overview: Channel;
  private linkTimer = 0;
  /** When the last frame was drawn. */
  private drawn = 0;
  private failures = 0;
  /** What was said of boxes that couldn't be had. */
  private missing = "";
  /** When all were told of what is new, of so many lanes; when boxes were asked for again, and
   * all of them. */
  private told = { at: 0, lanes: -1 };
  private refreshed = { at: 0, glimpses: 0 };
  private renewed = 0;
  /** Whether something is new that was not shown. */
  private isNews = false;
  /** Whether what is new is being asked for, and what is in sight may not be what is known. */
  private isTaking = false;

  constructor() {
    const { app } = this;
    const selection = new Selection(app);
    const notes = new Notes(app);
    const parts: Parts = {
      app,
      timeline: this.timeline,
      ruler: this.ruler,
      search: new Search(app),
      finder: this.finder,
      notes,
      panel: this.panel,
      selection,
      legend: () => this.legend(),
      theme: () => this.otherTheme(),
    };
    this.overview = app.tiles.channel;
    new Header(app);
    this.panel.add("detail", new Detail(app));
    this.panel.add("selection", selection);
    this.panel.add("events", new Events(app));
    this.panel.add("flame", this.flame);
    this.panel.add("notes", notes);
    byId("theme-button").addEventListener("click", () => this.otherTheme());
    byId("legend-button").addEventListener("click", () => this.legend());
    byId("find-track").addEventListener("click", () => this.finder.open());
    for (const dialog of document.querySelectorAll("dialog")) {
      dialog.addEventListener("click", (event) => {
        if (event.target === dialog) dialog.close();
      });
    }
    listen(parts);
    app.on("shift", () => void this.minimap.refresh(this.overview));
    app.on("tracks", () => link.resume(app));
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== link.write(link.current(app))) link.restore(app, link.read(location.hash));
    });
    window.tompion = { app, timeline: this.timeline, settled: () => this.timeline.settled && !this.isTaking, there: () => this.timeline.there };
  }

  private frame(): void {
    const { app } = this;
    if (app.view.step()) app.draw();
    this.timeline.paint();
    this.tellMissing();
    this.names.paint();
    this.ruler.paint();
    this.minimap.paint();
    this.tooltip.show();
    this.flame.viewMoved();
    this.mark("settled", String(this.timeline.settled));
    this.mark("level", String(this.timeline.level));
    this.drawn = performance.now();
    this.linkTimer ||= window.setTimeout(() => this.linkSoon(), LINK_DELAY);
  }

  /** Says of the page what tests look for. */
  private mark(what: string, value: string): void {
    const state = document.documentElement.dataset;
    if (state[what] !== value) state[what] = value;
  }

  /** Writes the link when nothing moves any more. */
  private linkSoon(): void {
    const left = this.drawn + LINK_DELAY - performance.now();
    this.linkTimer = left > 1 ? window.setTimeout(() => this.linkSoon(), left) : 0;
    if (this.linkTimer === 0) this.writeLink();
  }

  /** Says why boxes are not there, for as long as they aren't. */
  private tellMissing(): void {
    const { app } = this;
    const { error } = app.tiles;
    const line = error === "" ? "" : `some parts are not drawn; retrying every second: ${error}`;
    if (line === this.missing) return;
    if (line !== "" || app.message === this.missing) app.say(line);
    this.missing = line;
  }

  private writeLink(): void {
    const text = `#${link.write(link.current(this.app))}`;
    if (location.hash !== text) history.replaceState(null, "", location.pathname + text);
  }

  private legend(): void {
    const dialog = byId<HTMLDialogElement>("legend");
    if (dialog.open) {
      dialog.close();
      return;
    }
    fill(byId("legend-place"), legend(this.app));
    dialog.showModal();
  }

  private otherTheme(): void {
    this.app.setTheme(this.app.theme === "light" ? "dark" : "light");
    try {
      localStorage.setItem("tompion-theme", this.app.theme);
    } catch {
      // Where nothing may be kept, the next visit begins with the system's choice.
    }
  }

  private startTheme(): Theme {
    let kept: string | null = null;
    try {
      kept = localStorage.getItem("tompion-theme");
    } catch {
      // As above.
    }
    if (kept === "light" || kept === "dark") return kept;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  async start(): Promise<void> {
    const { app } = this;
    app.setTheme(this.startTheme());
    const { hash } = location;
    const size = link.pictureSize(hash);
    if (size !== null) this.hold(size);
    try {
      const tracks = await this.open();
      app.tracks.commands = app.info.commands ?? [];
      app.tracks.recorded = new Map((app.info.processes ?? []).map((process) => [process.pid, process]));
      app.tracks.add(tracks);
    } catch (failure) {
      this.fail(reason(failure));
      return;
    }
    app.tracks.openAtFirst();
    app.tracks.layout();
    app.view.limits = { begin: app.info.begin, end: Math.max(app.info.end, app.info.begin + 1) };
    app.view.begin = app.view.whole().begin;
    app.view.end = app.view.whole().end;
    app.tell("info");
    app.tell("tracks");
    this.panel.show();
    link.restore(app, link.atFirst(hash, app.info.incident));
    // What is in sight is asked for before the first frame is drawn, which a browser that is just
    // begun lets wait.
    this.timeline.look();
    app.drawnBy(() => this.frame());
    document.documentElement.dataset["loaded"] = "true";
    void this.minimap.refresh(this.overview);
    void this.loadNotes();
    this.poll();
  }

  /** Asks what is open; its tracks. The page's HTML has the browser ask for both while it reads
   * this script. */
  private async open(): Promise<WireTrack[]> {
    const words = "looking for the trace's packets; a large trace that is not cached takes as long as its disk";
    const late = window.setTimeout(() => this.app.say(words), LONG);
    const [info, { tracks, generation, progress = 0 }] = await Promise.all([api.trace(), api.tracks()]);
    window.clearTimeout(late);
    if (this.app.message === words) this.app.say("");
    this.app.info = info;
    // Tracks that are older than what says that all is known would never be asked for again.
    const isOld = generation !== info.generation || (info.progress >= 1 && progress < 1);
    return isOld ? (await api.tracks()).tracks : tracks;
  }

  /** For a picture, the page has the picture's size: a browser without a window gives it that
   * only when it takes it. */
  private hold({ width, height }: { width: number; height: number }): void {
    Object.assign(document.body.style, { width: `${width}px`, height: `${height}px` });
  }

  private async loadNotes(): Promise<void> {
    try {
      await this.app.loadNotes();
    } catch (failure) {
      this.app.say(`notes can't be read: ${reason(failure)}`);
    }
  }

  private fail(line: string): void {
    document.documentElement.dataset["loaded"] = "failed";
    this.app.say(line);
  }

  /** Asks again each second while the trace grows or is still being read; later now and then, for
   * it may vanish. */
  private poll(): void {
    const { info } = this.app;
    const reading = this.isBare || performance.now() < EARLY ? POLL_EARLY : POLL_READING;
    const known = info.progress < 1 ? reading : info.growing ? POLL : POLL_WHOLE;
    // Whoever doesn't answer is asked less often, but not for ever no more.
    const pace = this.failures >= PATIENCE ? POLL_WHOLE : known;
    window.setTimeout(() => void this.again(), pace);
  }

  private async again(): Promise<void> {
    const { app } = this;
    const before = app.info;
    try {
      const info = await api.trace();
      if (this.failures > 0) app.say("");
      this.failures = 0;
      app.info = info;
      const [now, then] = [app.shifts, before.traces.map((part) => part.offset).join()];
      if (now !== then) app.shifted();
      const anew = info.generation !== before.generation;
      const told: (keyof TraceInfo)[] = ["progress", "glimpses", "events", "end"];
      const isMore = told.some((what) => info[what] !== before[what]);
      this.isNews ||= isMore;
      if (anew || (this.isNews && this.isTime(info))) {
        this.isNews = false;
        if (!anew && this.canWait(info)) {
          this.refresh();
          app.tell("info");
        } else {
          this.isTaking = true;
          await this.grown(anew);
        }
      } else if (info.gone !== before.gone || info.error !== before.error) {
        app.tell("info");
      }
    } catch (failure) {
      this.failures += 1;
      app.say(reason(failure));
    } finally {
      this.isTaking = false;
    }
    this.poll();
  }

  /** Whether to ask now for what is new: not while the reader moves, and more seldom than it
   * comes. */
  private isTime(info: TraceInfo): boolean {
    if (info.progress >= 1 || this.isBare) return true;
    const now = performance.now();
    if (now - this.app.view.moved < STILL) return false;
    const pace = info.glimpses === this.refreshed.glimpses ? PROGRESS : POLL_READING;
    return now - this.refreshed.at >= pace;
  }

  /** Whether nothing is known but channels. */
  private get isBare(): boolean {
    for (const { kind } of this.app.tracks.laneKind.values()) if (kind !== "density") return false;
    return true;
  }

  /** Whether new tracks and numbers can wait, and new boxes are all that is shown of what was
   * read meanwhile. */
  private canWait(info: TraceInfo): boolean {
    const pace = info.lanes === this.told.lanes ? NAMES : POLL;
    return performance.now() - this.told.at < pace && info.progress < 1 && !this.isBare;
  }

  /** Has boxes asked for again; those of what was read whole more seldom, for they may still end
   * later. */
  private refresh(): void {
    const { info, tiles } = this.app;
    const now = performance.now();
    this.refreshed = { at: now, glimpses: info.glimpses ?? 0 };
    const all = info.progress >= 1 || now - this.renewed > WHOLE;
    if (all) this.renewed = now;
    tiles.outdated(all);
  }

  /** Takes what is new of a trace; one that was read anew may have fewer tracks, and the others
   * have their numbers. */
  private async grown(anew: boolean): Promise<void> {
    const { app } = this;
    const isBare = this.isBare;
    this.told = { at: performance.now(), lanes: app.info.lanes ?? -1 };
    const { tracks } = await api.tracks(true);
    if (anew && app.tracks.all.size > 0) {
      app.tracks.replace(tracks);
      app.forgetGone();
    } else {
      app.tracks.add(tracks);
    }
    // Of a trace of which nothing but channels was known, these are the first that are worth it.
    if (isBare) app.tracks.openAtFirst();
    app.tracks.layout();
    app.view.limit(app.info.begin, app.info.end);
    if (anew) app.tiles.outdated();
    else this.refresh();
    app.tell("tracks");
    app.tell("info");
    // New lanes in sight are wanted from now on, not from the next frame on: what is there of the
    // others is not all.
    this.timeline.look();
    void this.minimap.refresh(this.overview);
    await this.findNotes();
  }

  /** Of notes on tracks that nobody had seen so far, some may be known now. */
  private async findNotes(): Promise<void> {
    const lost = this.app.notes.filter((note) => note.of !== undefined && note.track === undefined);
    if (lost.length === 0) return;
    const { notes: found } = await api.notes(true);
    for (const note of lost) {
      const same = found.find((other) => other.time === note.time && JSON.stringify(other.of) === JSON.stringify(note.of));
      if (same?.track !== undefined) note.track = same.track;
    }
  }
}

void new Page().start();
