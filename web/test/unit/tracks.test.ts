import { describe, expect, it } from "vitest";
import { match, rank } from "../../src/data/fuzzy";
import { lanePlaces } from "../../src/draw/overlay";
import { originOf, Tracks } from "../../src/data/tracks";
import type { RecordedProcess, TrackInfo } from "../../src/data/wire";

function thread(id: number, parent: number, busy = 0): TrackInfo {
  return { id, parent, kind: "thread", name: `worker-${id}`, tid: id, busy, lanes: [{ id: 10 * id, kind: "thread" }, { id: 10 * id + 1, kind: "marks" }] };
}

function machine(): Tracks {
  const tracks = new Tracks();
  tracks.add([{ id: 1, parent: -1, kind: "process", name: "server", pid: 1 }, thread(2, 1, 5), thread(3, 1, 9), { id: 4, parent: -1, kind: "channel", name: "c", lanes: [{ id: 400, kind: "density" }] }]);
  tracks.layout();
  return tracks;
}

/** Recorded process of which only its parent is known. */
function recorded(pid: number, parent: number | null): RecordedProcess {
  return { pid, host: "a", parent, command: "", end: "" };
}

/** Recorded processes, each a child of the one before. */
function family(count: number): { tracks: Tracks; wire: TrackInfo[] } {
  const tracks = new Tracks();
  const pids = Array.from({ length: count }, (_, at) => at + 1);
  tracks.recorded = new Map(pids.map((pid) => [pid, recorded(pid, pid - 1)]));
  const wire = pids.map((pid): TrackInfo => ({ id: pid, parent: -1, kind: "process", name: "p", pid }));
  tracks.add(wire);
  return { tracks, wire };
}

describe("tracks", () => {
  it("show the busiest threads of a collapsed process as thin lines", () => {
    const tracks = machine();
    expect(tracks.rows.map((row) => row.track.id)).toEqual([1, 4]);
    expect(tracks.rows[0]?.slots.map((slot) => slot.lane.id)).toEqual([30, 20]);
    expect(tracks.rows[0]?.slots.every((slot) => slot.small)).toBe(true);
  });

  it("begin with the recorded program, and end with the collapsed recorder", () => {
    const tracks = new Tracks();
    tracks.commands = ["sh"];
    const processes = ["tompion", "busy", "sh"].map((name, at): TrackInfo => ({ id: at, parent: -1, kind: "process", name, pid: at }));
    tracks.add([...processes, { ...thread(10, 0, 900), name: "consumer" }, thread(11, 1, 500), thread(12, 2, 1)]);
    tracks.expandInitially();
    expect(tracks.roots.map((id) => tracks.all.get(id)?.name)).toEqual(["sh", "busy", "tompion"]);
    expect([0, 1, 2].map((id) => tracks.open.has(id))).toEqual([false, true, true]);
  });

  it("know the recorded program by its process ID, and nest its children below it", () => {
    const tracks = new Tracks();
    tracks.commands = ["sh"];
    const names: [number, string][] = [[1, "sh"], [2, "worker"], [3, "busy"], [4, "sh"], [5, "helper"], [6, "other"]];
    tracks.recorded = new Map([
      [4, { ...recorded(4, null), command: "sh -c x", end: "exited with 3" }],
      [2, recorded(2, 4)],
      [6, recorded(6, 77)],
      [5, recorded(5, 2)],
    ]);
    const processes = names.map(([pid, name]): TrackInfo => ({ id: pid, parent: -1, kind: "process", name, pid }));
    tracks.add([...processes.slice(0, 4), { id: 90, parent: -1, kind: "channel", name: "c" }, ...processes.slice(4)]);
    tracks.add([thread(11, 1, 100), thread(12, 2, 300), thread(13, 3, 900), thread(14, 4, 50), thread(15, 5, 1), thread(16, 6, 30)]);
    expect(tracks.roots).toEqual([4, 6, 3, 1, 90]);
    expect([4, 2, 5].map((id) => tracks.all.get(id)?.children)).toEqual([[14, 2], [12, 5], [15]]);
    tracks.expandInitially();
    tracks.layout();
    expect(tracks.rows.slice(0, 6).map(({ track, indent }) => [track.id, indent])).toEqual([[4, 0], [14, 1], [2, 1], [12, 2], [5, 2], [15, 3]]);
    expect(originOf({ pid: 4, host: "a", parent: 1, command: "sh -c x", end: "exited with 3" })).toBe("sh -c x\nchild of 1\nexited with 3");
    expect(originOf(recorded(4, null))).toBe("");
  });

  it("are not taken for recorded processes of another host", () => {
    const tracks = new Tracks();
    tracks.recorded = new Map([[1, recorded(1, null)], [2, recorded(2, 1)]]);
    const process = (id: number, pid: number, host: string): TrackInfo => ({ id, parent: -1, kind: "process", name: "p", pid, host });
    tracks.add([process(11, 1, "a"), process(12, 2, "a"), process(21, 1, "b"), process(22, 2, "b")]);
    expect([...tracks.roots].sort()).toEqual([11, 21, 22]);
    expect(tracks.all.get(11)?.children).toEqual([12]);
    expect([11, 12, 21, 22].map((id) => tracks.recordedOf(id)?.pid)).toEqual([1, 2, undefined, undefined]);
  });

  it("stay nested when they are updated, and are revealed with all parents", () => {
    const { tracks, wire } = family(3);
    tracks.add(wire.map((track) => ({ ...track, busy: 7 })));
    tracks.reveal(3);
    tracks.layout();
    expect(tracks.rows.map(({ track, indent }) => [track.id, indent])).toEqual([[1, 0], [2, 1], [3, 2]]);
  });

  it("of a process are selected with all child processes, as the server finds them", () => {
    const { tracks } = family(3);
    expect(tracks.selectedBy([1])).toEqual([1, 2, 3]);
    expect(tracks.isIn(3, new Set([1])), "the server's tree has no parents of processes").toBe(false);
    tracks.reveal(3);
    expect(tracks.selectedBy([1, 2])).toEqual([2, 3]);
  });

  it("of a long chain of processes are all listed", () => {
    const { tracks } = family(30);
    tracks.expandInitially();
    tracks.layout();
    expect(tracks.rows.map(({ track }) => track.id)).toEqual(Array.from({ length: 30 }, (_, at) => at + 1));
    expect(Math.max(...tracks.rows.map(({ indent }) => indent))).toBe(6);
  });

  it("lose no process when process IDs are reused", () => {
    const tracks = new Tracks();
    tracks.recorded = new Map([
      [1, recorded(1, 2)],
      [2, recorded(2, 1)],
      [3, recorded(3, 3)],
    ]);
    tracks.add([1, 2, 3].map((pid): TrackInfo => ({ id: pid, parent: -1, kind: "process", name: "p", pid })));
    expect([...tracks.roots].sort()).toEqual([1, 2, 3]);
  });

  it("show the threads of a pinned process, also while they are in the tree", () => {
    const tracks = machine();
    tracks.pin(1);
    tracks.toggle(1);
    tracks.layout();
    expect(tracks.rows[0]?.slots).toEqual([]);
    expect(tracks.pinnedRows[0]?.slots.map((slot) => slot.lane.id)).toEqual([30, 20]);
    const placed = [...tracks.pinnedRows.map((row) => ({ row, y: row.y, pinned: true })), ...tracks.rows.map((row) => ({ row, y: 100 + row.y, pinned: false }))];
    expect(lanePlaces(placed).get(20)?.slot.small, "arrows lead to the thread's own row").toBe(false);
  });

  it("are selected with everything below, headings only if nothing below is marked", () => {
    const tracks = machine();
    // Collapsed, it has two thin lines; expanded, none.
    expect(tracks.selectedBy([1, 4])).toEqual([1, 4]);
    tracks.toggle(1);
    expect(tracks.selectedBy([1])).toEqual([1]);
    expect(tracks.selectedBy([1, 3, 4, 3])).toEqual([3, 4]);
    expect([1, 2, 3, 4, 99].filter((id) => tracks.isIn(id, new Set([1])))).toEqual([1, 2, 3]);
    expect([1, 2, 3, 4].filter((id) => tracks.isIn(id, new Set()))).toEqual([]);
  });

  it("are placed without gaps", () => {
    const tracks = machine();
    tracks.expandInitially();
    tracks.layout();
    let y = 0;
    for (const row of tracks.rows) {
      expect(row.y).toBe(y);
      for (const slot of row.slots) expect(slot.y + slot.height).toBeLessThanOrEqual(row.height);
      y += row.height;
    }
    expect(tracks.height).toBe(y);
    expect(Tracks.rowAt(tracks.rows, tracks.rows[2]?.y ?? 0)).toBe(2);
  });

  it("are revealed with all their parents", () => {
    const tracks = machine();
    tracks.reveal(3);
    tracks.layout();
    expect(tracks.rows.map((row) => row.track.id)).toEqual([1, 2, 3, 4]);
  });

  it("of a hundred thousand threads are laid out, and of an endless tree", () => {
    const tracks = new Tracks();
    const many: TrackInfo[] = [{ id: 0, parent: -1, kind: "process", name: "p", pid: 1 }];
    for (let id = 1; id <= 100_000; id++) many.push(thread(id, 0));
    tracks.add(many);
    tracks.open.add(0);
    tracks.layout();
    expect(tracks.rows.length).toBe(100_001);
    const endless = new Tracks();
    endless.add([{ id: 1, parent: 2, kind: "group", name: "a" }, { id: 2, parent: 1, kind: "group", name: "b" }, { id: 3, parent: 3, kind: "group", name: "c" }]);
    endless.expandInitially();
    endless.layout();
    expect(endless.rows.length).toBeLessThan(100);
  });

  it("can be pinned and unpinned", () => {
    const tracks = machine();
    tracks.pin(3);
    tracks.layout();
    expect(tracks.pinnedRows.map((row) => row.track.id)).toEqual([3]);
    tracks.pin(3);
    tracks.layout();
    expect(tracks.pinnedRows).toEqual([]);
  });
});

describe("the finder", () => {
  it("finds letters in order, and whole words first", () => {
    expect(match("dw", "db-writer")?.places).toEqual([0, 3]);
    expect(match("xq", "db-writer")).toBeNull();
    const { best } = rank("rcu", ["mircus", "rcu_preempt", "r-c-u", "idle"], (name) => name, 9);
    expect(best.map(({ item }) => item)).toEqual(["rcu_preempt", "mircus", "r-c-u"]);
    expect(best[1]?.match.places).toEqual([2, 3, 4]);
  });

  it("returns the best of many, and all matches for longer texts", () => {
    const names = Array.from({ length: 2000 }, (_, at) => `worker-${at}`);
    const found = rank("wo1", names, (name) => name, 5);
    expect(found.best.map(({ item }) => item)).toEqual(["worker-1", "worker-10", "worker-11", "worker-12", "worker-13"]);
    expect(found.all).toEqual(names.filter((name) => name.includes("1")));
    const again = rank("wo1999", names, (name) => name, 5);
    expect(rank("wo1999", found.all, (name) => name, 5)).toEqual(again);
    expect(again.best.map(({ item }) => item)).toEqual(["worker-1999"]);
    expect(rank("", names, (name) => name, 2).best.map(({ item }) => item)).toEqual(["worker-0", "worker-1"]);
  });
});

describe("tracks of a trace that was indexed again", () => {
  it("stay expanded and pinned if they still exist", () => {
    const tracks = machine();
    tracks.reveal(3);
    tracks.pin(3);
    tracks.pin(2);
    tracks.replace([{ id: 1, parent: -1, kind: "process", name: "server", pid: 1 }, thread(3, 1), thread(9, 1)]);
    tracks.layout();
    expect([...tracks.open]).toEqual([1]);
    expect(tracks.pinned).toEqual([3]);
    expect(tracks.all.has(2)).toBe(false);
  });
});
