// Entry point of the page: opens the trace, connects the parts, and follows a growing trace.

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
import type { TraceOverview, TrackInfo } from "./data/wire";

/** Intervals of polling in milliseconds: a growing trace; a trace that is being read, whose visible
 * parts are prefetched; the first moments and a trace of which only channels are known; and a
 * completely read trace, or a server that does not answer. */
const POLL_INTERVAL = 1000;
const POLL_READING_INTERVAL = 250;
const POLL_EARLY_INTERVAL = 60;
const POLL_IDLE_INTERVAL = 5000;
/** Duration of the first moments, in milliseconds. */
const EARLY_PERIOD = 3000;
/** Intervals of refreshes while the trace is read: of tiles without a prefetch, of completely read
 * tiles, and of tracks without new lanes. */
const REFRESH_INTERVAL = 1000;
const REFRESH_ALL_INTERVAL = 5000;
const TRACK_NAMES_INTERVAL = 10_000;
/** Pause after a movement before tiles are refreshed. */
const STILL_DELAY = 250;
const LINK_DELAY = 300;
/** Time after which a message explains a slow start. */
const SLOW_START_DELAY = 1000;
/** Failed requests after which the server is polled less often. */
const MAX_FAILURES = 6;

/** Access for tests. */
declare global {
  interface Window {
    tompion?: { app: App; timeline: Timeline; settled: () => boolean; isComplete: () => boolean };
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
  /** Time of the last frame. */
  private drawn = 0;
  private failures = 0;
  /** Message about missing tiles. */
  private tileMessage = "";
  /** Time of the last update of tracks, and their number of lanes then. */
  private tracksUpdate = { at: 0, lanes: -1 };
  /** Time of the last refresh of tiles, and the number of prefetches then. */
  private tilesRefresh = { at: 0, prefetches: 0 };
  /** Time of the last refresh of all tiles. */
  private fullRefresh = 0;
  /** Whether something is new that is not shown yet. */
  private hasNews = false;
  /** Whether an update is in progress. */
  private isUpdating = false;

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
    window.tompion = { app, timeline: this.timeline, settled: () => this.timeline.settled && !this.isUpdating, isComplete: () => this.timeline.isComplete };
  }

  private frame(): void {
    const { app } = this;
    if (app.view.step()) app.draw();
    this.timeline.paint();
    this.reportMissingTiles();
    this.names.paint();
    this.ruler.paint();
    this.minimap.paint();
    this.tooltip.show();
    this.flame.viewMoved();
    this.mark("settled", String(this.timeline.settled));
    this.mark("level", String(this.timeline.level));
    this.drawn = performance.now();
    this.linkTimer ||= window.setTimeout(() => this.scheduleLink(), LINK_DELAY);
  }

  /** Sets an attribute that tests read. */
  private mark(what: string, value: string): void {
    const state = document.documentElement.dataset;
    if (state[what] !== value) state[what] = value;
  }

  /** Writes the link once nothing moves. */
  private scheduleLink(): void {
    const left = this.drawn + LINK_DELAY - performance.now();
    this.linkTimer = left > 1 ? window.setTimeout(() => this.scheduleLink(), left) : 0;
    if (this.linkTimer === 0) this.writeLink();
  }

  /** Shows why tiles are missing, as long as they are. */
  private reportMissingTiles(): void {
    const { app } = this;
    const { error } = app.tiles;
    const line = error === "" ? "" : `some parts are not drawn; retrying every second: ${error}`;
    if (line === this.tileMessage) return;
    if (line !== "" || app.message === this.tileMessage) app.showMessage(line);
    this.tileMessage = line;
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
      // Without storage, the next visit begins with the system's theme.
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
    const { hash } = location;
    const picture = link.picture(hash);
    app.setTheme(picture?.theme ?? this.startTheme());
    if (picture !== null) this.setPictureSize(picture);
    try {
      const tracks = await this.open();
      app.tracks.commands = app.info.commands;
      app.tracks.recorded = new Map(app.info.processes.map((process) => [process.pid, process]));
      app.tracks.add(tracks);
    } catch (failure) {
      this.fail(reason(failure));
      return;
    }
    app.tracks.expandInitially();
    app.tracks.layout();
    app.view.limits = { begin: app.info.begin, end: Math.max(app.info.end, app.info.begin + 1) };
    app.view.begin = app.view.whole().begin;
    app.view.end = app.view.whole().end;
    app.notify("info");
    app.notify("tracks");
    this.panel.show();
    link.restore(app, link.initialState(hash, app.info.incident));
    // Visible tiles are requested before the first frame, which a starting browser delays.
    this.timeline.layout();
    app.setFrameDrawer(() => this.frame());
    document.documentElement.dataset["loaded"] = "true";
    void this.minimap.refresh(this.overview);
    void this.loadNotes();
    this.poll();
  }

  /** Requests the trace and its tracks. The page's HTML preloads both. */
  private async open(): Promise<TrackInfo[]> {
    const words = "looking for the trace's packets; a large trace that is not cached takes as long as its disk";
    const late = window.setTimeout(() => this.app.showMessage(words), SLOW_START_DELAY);
    const [info, { tracks, generation, progress }] = await Promise.all([api.trace(), api.tracks()]);
    window.clearTimeout(late);
    if (this.app.message === words) this.app.showMessage("");
    this.app.info = info;
    // Outdated tracks of a completely read trace would never be requested again.
    const isOld = generation !== info.generation || (info.progress >= 1 && progress < 1);
    return isOld ? (await api.tracks()).tracks : tracks;
  }

  /** Gives the page the size of a picture. A browser without a window sets it too late. */
  private setPictureSize({ width, height }: { width: number; height: number }): void {
    Object.assign(document.body.style, { width: `${width}px`, height: `${height}px` });
  }

  private async loadNotes(): Promise<void> {
    try {
      await this.app.loadNotes();
    } catch (failure) {
      this.app.showMessage(`notes can't be read: ${reason(failure)}`);
    }
  }

  private fail(line: string): void {
    document.documentElement.dataset["loaded"] = "failed";
    this.app.showMessage(line);
  }

  /** Polls the server: often while the trace grows or is read, later seldom, since files may
   * vanish. */
  private poll(): void {
    const { info } = this.app;
    const reading = this.hasOnlyChannels || performance.now() < EARLY_PERIOD ? POLL_EARLY_INTERVAL : POLL_READING_INTERVAL;
    const known = info.progress < 1 ? reading : info.growing ? POLL_INTERVAL : POLL_IDLE_INTERVAL;
    // A server that does not answer is polled less often.
    const interval = this.failures >= MAX_FAILURES ? POLL_IDLE_INTERVAL : known;
    window.setTimeout(() => void this.update(), interval);
  }

  private async update(): Promise<void> {
    const { app } = this;
    const before = app.info;
    try {
      const info = await api.trace();
      if (this.failures > 0) app.showMessage("");
      this.failures = 0;
      app.info = info;
      const [now, then] = [app.offsetKey, before.traces.map((part) => part.offset).join()];
      if (now !== then) app.applyShift();
      const isReindexed = info.generation !== before.generation;
      const watched: (keyof TraceOverview)[] = ["progress", "glimpses", "events", "end"];
      const isMore = watched.some((what) => info[what] !== before[what]);
      this.hasNews ||= isMore;
      if (isReindexed || (this.hasNews && this.isUpdateDue(info))) {
        this.hasNews = false;
        if (!isReindexed && this.canSkipTracks(info)) {
          this.refreshTiles();
          app.notify("info");
        } else {
          this.isUpdating = true;
          await this.updateTracks(isReindexed);
        }
      } else if (info.gone !== before.gone || info.error !== before.error) {
        app.notify("info");
      }
    } catch (failure) {
      this.failures += 1;
      app.showMessage(reason(failure));
    } finally {
      this.isUpdating = false;
    }
    this.poll();
  }

  /** Whether an update is due: not during movements, and not after each poll. */
  private isUpdateDue(info: TraceOverview): boolean {
    if (info.progress >= 1 || this.hasOnlyChannels) return true;
    const now = performance.now();
    if (now - this.app.view.moved < STILL_DELAY) return false;
    const interval = info.glimpses === this.tilesRefresh.prefetches ? REFRESH_INTERVAL : POLL_READING_INTERVAL;
    return now - this.tilesRefresh.at >= interval;
  }

  /** Whether only channels are known. */
  private get hasOnlyChannels(): boolean {
    for (const { kind } of this.app.tracks.laneKind.values()) if (kind !== "density") return false;
    return true;
  }

  /** Whether tracks can wait, so that only tiles are refreshed. */
  private canSkipTracks(info: TraceOverview): boolean {
    const interval = info.lanes === this.tracksUpdate.lanes ? TRACK_NAMES_INTERVAL : POLL_INTERVAL;
    return performance.now() - this.tracksUpdate.at < interval && info.progress < 1 && !this.hasOnlyChannels;
  }

  /** Refreshes tiles. Completely read ones are refreshed less often: their slices may still end
   * later. */
  private refreshTiles(): void {
    const { info, tiles } = this.app;
    const now = performance.now();
    this.tilesRefresh = { at: now, prefetches: info.glimpses };
    const all = info.progress >= 1 || now - this.fullRefresh > REFRESH_ALL_INTERVAL;
    if (all) this.fullRefresh = now;
    tiles.markOutdated(all);
  }

  /** Updates tracks and tiles. A trace that was indexed again may have fewer tracks. */
  private async updateTracks(isReindexed: boolean): Promise<void> {
    const { app } = this;
    const hadOnlyChannels = this.hasOnlyChannels;
    this.tracksUpdate = { at: performance.now(), lanes: app.info.lanes };
    const { tracks } = await api.tracks(true);
    if (isReindexed && app.tracks.all.size > 0) {
      app.tracks.replace(tracks);
      app.dropMissingTracks();
    } else {
      app.tracks.add(tracks);
    }
    // These are the first tracks besides channels.
    if (hadOnlyChannels) app.tracks.expandInitially();
    app.tracks.layout();
    app.view.limit(app.info.begin, app.info.end);
    if (isReindexed) app.tiles.markOutdated();
    else this.refreshTiles();
    app.notify("tracks");
    app.notify("info");
    // New visible lanes are requested now, not with the next frame, so that tests see them missing.
    this.timeline.layout();
    void this.minimap.refresh(this.overview);
    await this.resolveNotes();
  }

  /** Resolves the tracks of notes that were not known so far. */
  private async resolveNotes(): Promise<void> {
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
