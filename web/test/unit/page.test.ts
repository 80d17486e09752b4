import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("location", { search: "", href: "http://localhost/", hash: "" });

const { EMPTY_OVERVIEW } = await import("../../src/app");
const { mix, nameColour, oklch, pack } = await import("../../src/draw/colours");
const { adjacentFrame, placeFlame } = await import("../../src/panels/flame");
const { nameOf, stopsOf } = await import("../../src/input/keys");
const link = await import("../../src/data/link");
const { isolate, shorten } = await import("../../src/dom");
const { neighbourText, whyText } = await import("../../src/panels/detail");
const { brief, incidentText } = await import("../../src/panels/header");
const { namesOf, offsetOf } = await import("../../src/panels/offsets");
const { keysOf, mergeNotes } = await import("../../src/data/merge");
const { isVisible, tooMany, unreadIn } = await import("../../src/draw/overlay");
const { unreadOf } = await import("../../src/panels/statistics");
const { parse } = await import("../../src/data/worker");
const { levelFor, Tiles, tileSpan } = await import("../../src/data/tiles");
const { Tracks } = await import("../../src/data/tracks");
const { Style } = await import("../../src/data/wire");
const { pack: wire } = await import("../mock/pack.mjs");
type Tile = import("../../src/data/tiles").Tile;
type LanesAnswer = import("../../src/data/worker").LanesAnswer;
type Channel = import("../../src/data/channel").Channel;

describe("colours", () => {
  it("mix and stay opaque", () => {
    expect(mix(pack("#000000"), pack("#ffffff"), 1)).toBe(0xffffffff);
    expect(mix(pack("#102030"), pack("#ffffff"), 0)).toBe(pack("#102030"));
    expect(mix(pack("#000000"), pack("#808080"), 0.5) >>> 24).toBe(255);
  });
  it("of threads that differ by a number are equal", () => {
    expect(nameColour("kworker/0:1")).toBe(nameColour("kworker/3:2"));
    expect(oklch(1, 0, 0)).toBe("#ffffff");
  });
});

describe("unread ranges", () => {
  const info = { ...EMPTY_OVERVIEW, end: 1000 };
  it("are those after the index and between prefetched parts", () => {
    expect(unreadIn({ ...info, progress: 0.1 })).toEqual([[100, 1000]]);
    expect(unreadIn({ ...info, progress: 0.1, seen: [[50, 150], [200, 300]] })).toEqual([[150, 200], [300, 1000]]);
    expect(unreadIn({ ...info, progress: 0.1, seen: [[90, 1000]] })).toEqual([]);
  });
  it("are none in a completely read trace", () => {
    expect(unreadIn({ ...info, progress: 1, seen: [[200, 300]] })).toEqual([]);
  });
});

describe("arrows", () => {
  it("that are not drawn are counted in a message", () => {
    expect(tooMany(1234, true)).toBe("1\u202f234 and more arrows, too many to draw: zoom in, or select a slice");
    expect(tooMany(301, false)).toMatch(/^301 arrows,/);
  });
});

describe("the measured part of a trace that is being read", () => {
  it("is stated as a share", () => {
    expect(unreadOf("it", [100, 200], 150)).toBe("only the first 50 % of it is read so far");
    expect(unreadOf("it", [100, 200], 50)).toBe("none of it is read so far");
    expect(unreadOf("it", [100, 200], 200)).toBe("");
    expect(unreadOf("it", [100, 200], undefined)).toBe("");
  });
});

describe("notes of several pages", () => {
  const note = (time: number, text: string) => ({ time, text });
  it("have the additions and removals of each page", () => {
    const before = [note(1, "both"), note(2, "I remove"), note(3, "they remove"), note(4, "I change"), note(5, "they change")];
    const mine = [note(1, "both"), note(3, "they remove"), note(4, "I changed"), note(5, "they change"), note(9, "mine")];
    const theirs = [note(1, "both"), note(2, "I remove"), note(4, "I change"), note(5, "they changed"), note(8, "theirs")];
    const merged = mergeNotes(keysOf(before), mine, theirs);
    expect(merged.map(({ text }) => text)).toEqual(["both", "I changed", "they changed", "theirs", "mine"]);
    // A note that is being edited stays the same object.
    expect(merged[0]).toBe(mine[0]);
  });
  it("are all kept if nothing was read before", () => {
    expect(mergeNotes(new Set(), [note(2, "mine"), note(1, "same")], [note(1, "same"), note(3, "theirs")]).map(({ text }) => text)).toEqual(["same", "mine", "theirs"]);
  });
});

describe("a link", () => {
  const state = {
    begin: 5, end: 90, lane: "thread:55/span.1", at: 7, area: { begin: 6, end: 8, tracks: ["thread:55", "counter:a%2Cb%3A1@left"] },
    pinned: ["cpu:3@left", "group:CPUs%20of%20left"], open: ["process:100;1"], scroll: 12, clock: "utc" as const, tab: "flame" as const,
    filter: "a > 1 && b == \"x&y\"", names: "sched_*", searchText: "#1 ü", offsets: [0, -2_500_000],
  };
  it("restores the state that it was written from", () => {
    expect(link.read(`#${link.write(state)}`)).toEqual(state);
  });
  it("is readable", () => {
    expect(link.write({ begin: 1, end: 2, lane: "thread:55/span.1", at: 7 })).toBe("v=1,2&s=thread:55/span.1,7");
  });
  it("with invalid values restores nothing", () => {
    expect(link.read("#v=9,1&s=x,y&a=<script>&c=moon&t=__proto__&x=a")).toEqual({});
  });
  it("of an earlier version is restored as far as possible", () => {
    expect(link.read("#v=1,2&s=3,7&a=6,8&p=4,2&o=1")).toEqual({ begin: 1, end: 2, lane: "3", at: 7, area: { begin: 6, end: 8, tracks: [] }, pinned: ["4", "2"], open: ["1"] });
  });
});

describe("tracks in links", () => {
  const thread = (id: number, tid: number, host?: string) => ({ id, parent: -1, kind: "thread" as const, name: "worker", tid, ...(host === undefined ? {} : { host }), lanes: [{ id: 10 * id, kind: "thread" as const }, { id: 10 * id + 1, kind: "span" as const, depth: 1 }] });
  const tracksOf = (...all: import("../../src/data/wire").TrackInfo[]) => {
    const tracks = new Tracks();
    tracks.add(all);
    return tracks;
  };
  it("are found whatever their numbers are in another index", () => {
    const before = new link.TrackNames(tracksOf(thread(3, 55), thread(4, 66), { id: 9, parent: -1, kind: "counter", name: "a,b:1", lanes: [{ id: 90, kind: "counter" }] }));
    const after = new link.TrackNames(tracksOf({ id: 0, parent: -1, kind: "counter", name: "a,b:1", lanes: [{ id: 7, kind: "counter" }] }, thread(1, 66), thread(2, 55)));
    expect(after.track(before.name(3) ?? "")).toBe(2);
    expect(after.track(before.name(9) ?? "")).toBe(0);
    expect(after.laneOf(before.lane(41) ?? "")).toBe(11);
    expect(after.laneOf(before.lane(90) ?? "")).toBe(7);
    expect(before.lane(41)).toBe("thread:66/span.1");
  });
  it("are distinguished by machine, and by order among equal names", () => {
    const names = new link.TrackNames(tracksOf(thread(1, 55, "left"), thread(2, 55, "right"), thread(3, 55, "right")));
    expect([1, 2, 3].map((id) => names.name(id))).toEqual(["thread:55@left", "thread:55@right", "thread:55@right;1"]);
    for (const id of [1, 2, 3]) expect(names.track(names.name(id) ?? "")).toBe(id);
  });
  it("have the numbers that links of earlier versions have", () => {
    const names = new link.TrackNames(tracksOf(thread(1, 55)));
    expect([names.track("1"), names.laneOf("11"), names.track("2"), names.track("thread:7"), names.laneOf("thread:55")]).toEqual([1, 11, null, null, null]);
  });
});

describe("keys", () => {
  const key = (text: string, more = {}) => nameOf({ key: text, ctrlKey: false, metaKey: false, shiftKey: false, ...more });
  it("have one name on every keyboard", () => {
    expect(key("f")).toBe("f");
    expect(key("N", { shiftKey: true })).toBe("shift+N");
    expect(key("/", { shiftKey: true })).toBe("/");
    expect(key("Z", { ctrlKey: true, shiftKey: true })).toBe("ctrl+shift+z");
    expect(key("Backspace", { shiftKey: true })).toBe("shift+Backspace");
    expect(key("ArrowRight", { shiftKey: true })).toBe("shift+ArrowRight");
    expect(key("ArrowUp", { ctrlKey: true })).toBe("ctrl+arrowup");
  });
  it("are the same with Caps Lock", () => {
    expect(key("F")).toBe("f");
    expect(key("n", { shiftKey: true })).toBe("shift+N");
    expect(key("Z", { ctrlKey: true })).toBe("ctrl+z");
  });
  it("of other scripts count by their position", () => {
    expect(key("а", { code: "KeyF" })).toBe("f");
    expect(key("Т", { code: "KeyN", shiftKey: true })).toBe("shift+N");
    expect(key("я", { code: "KeyZ", ctrlKey: true })).toBe("ctrl+z");
    expect(key("ю", { code: "Period" })).toBe(".");
    expect(key("١", { code: "Digit1" })).toBe("1");
    // Latin letters count as typed, whatever their position.
    expect(key("a", { code: "KeyQ" })).toBe("a");
  });
  it("go to headings and lanes in order", () => {
    const tracks = new Tracks();
    tracks.add([
      { id: 1, parent: -1, kind: "process", name: "server", pid: 1 },
      { id: 2, parent: 1, kind: "thread", name: "a", tid: 2, lanes: [{ id: 20, kind: "thread" }, { id: 21, kind: "span" }] },
      { id: 3, parent: -1, kind: "channel", name: "c", lanes: [{ id: 30, kind: "density" }] },
    ]);
    tracks.layout();
    const lanes = () => stopsOf(tracks.rows).map(({ track, lane }) => [track, lane]);
    expect(lanes()).toEqual([[1, -1], [3, 30]]);
    tracks.open.add(1);
    tracks.layout();
    expect(lanes()).toEqual([[1, -1], [2, 20], [2, 21], [3, 30]]);
  });
});

describe("the flame graph", () => {
  it("positions children side by side below their parent, the longest first", () => {
    const node = (name: string, total: number, parent: number) => ({ name, depth: 0, total, self: 0, count: 1, parent });
    const { placed, depth } = placeFlame([node("main", 100, -1), node("a", 20, 0), node("b", 60, 0), node("loop", 5, 3)], -1);
    expect(depth).toBe(2);
    const b = placed.find((one) => one.node.name === "b");
    const a = placed.find((one) => one.node.name === "a");
    expect(a?.x).toBeCloseTo((b?.x ?? 0) + (b?.width ?? 0));
    expect(placed.find((one) => one.node.name === "loop")?.node.depth).toBe(0);
  });
});

describe("arrows in the flame graph", () => {
  const node = (name: string, total: number, parent: number) => ({ name, depth: 0, total, self: 0, count: 1, parent });
  const { placed } = placeFlame([node("main", 100, -1), node("a", 20, 0), node("b", 60, 0), node("loop", 50, 2)], -1);
  it("lead to parents, children and neighbours only", () => {
    expect(adjacentFrame(placed, -1, "ArrowDown")).toBe(0);
    // The longest child comes first.
    expect(adjacentFrame(placed, 0, "ArrowDown")).toBe(2);
    expect(adjacentFrame(placed, 2, "ArrowRight")).toBe(1);
    expect(adjacentFrame(placed, 1, "ArrowLeft")).toBe(2);
    expect(adjacentFrame(placed, 2, "ArrowDown")).toBe(3);
    expect(adjacentFrame(placed, 3, "ArrowUp")).toBe(2);
    expect(["ArrowUp", "ArrowLeft", "ArrowRight"].map((arrow) => adjacentFrame(placed, 0, arrow))).toEqual([0, 0, 0]);
  });
});

describe("the worker", () => {
  it("converts an answer to arrays", () => {
    const first = parse(wire({ from: 0, to: 9, known: 7, lanes: [{ id: 1, boxes: [0, 5, Style.running, 1, 1, 5, 9, Style.idle, -1, 3] }], labels: ["a", "ü"] }));
    expect([first.labels, first.known]).toEqual([["a", "ü"], 7]);
    const [lane] = first.lanes;
    expect([...(lane?.times ?? [])]).toEqual([0, 5, 5, 9]);
    expect([...(lane?.styles ?? [])]).toEqual([Style.running, Style.idle]);
    expect([...(lane?.labels ?? [])]).toEqual([1, -1]);
    expect([...(lane?.counts ?? [])]).toEqual([1, 3]);
    const second = parse(wire({ from: 0, to: 9, lanes: [{ id: 1, boxes: [0, 5, 2, 0, 1] }, { id: 2, bins: [0, 1, 2, 3] }, { id: 3, boxes: [] }], labels: ["ü"] }));
    expect([second.labels, second.lanes[0]?.labels[0]]).toEqual([["ü"], 0]);
    expect(second.lanes[1]?.shape).toBe("bins");
    expect([...(second.lanes[1]?.times ?? [])]).toEqual([0, 1, 2, 3]);
    expect(second.lanes[2]?.styles.length).toBe(0);
  });
});

describe("tiles", () => {
  /** Worker that answers when the test says so. */
  class Server extends EventTarget {
    asked: { request: number; url: string; kind: string }[] = [];
    postMessage(message: { request: number; url: string; kind: string }): void {
      this.asked.push(message);
    }
    answer(request: number, lane: number, from: number, to: number, known = 2 ** 60): void {
      const data: LanesAnswer = {
        request, labels: [], known,
        lanes: [{ id: lane, times: Float64Array.of(from, to), styles: Uint8Array.of(2), labels: Int32Array.of(-1), counts: Uint32Array.of(1), shape: "boxes" }],
      };
      this.dispatchEvent(new MessageEvent("message", { data }));
    }
    fail(request: number, error: string): void {
      const data: LanesAnswer = { request, labels: [], known: 0, lanes: [], error };
      this.dispatchEvent(new MessageEvent("message", { data }));
    }
  }
  const make = () => {
    const server = new Server();
    return { server, tiles: new Tiles(server as unknown as Channel, () => {}) };
  };
  const covered = (tiles: InstanceType<typeof Tiles>, begin: number, end: number, scale: number) => {
    const found: [number, number][] = [];
    tiles.cover(7, begin, end, scale, (_: Tile, from, to) => found.push([from, to]));
    return found;
  };

  it("are never coarser than the screen", () => {
    for (const scale of [0.01, 1, 3, 1000, 1e9]) expect(2 ** levelFor(scale)).toBeLessThanOrEqual(Math.max(1, scale));
  });

  it("exist before time 0, where a trace may be shifted", () => {
    const { server, tiles } = make();
    tiles.want([7], -1_500_000, -500_000, 1024);
    const asked = server.asked.map(({ url }) => Number(new URL(url).searchParams.get("from")));
    expect(asked).toEqual([-2 * tileSpan(10), -tileSpan(10)]);
    server.answer(1, 7, -1_400_000, -1_300_000);
    server.answer(2, 7, -600_000, -550_000);
    expect(tiles.settled).toBe(true);
    expect(covered(tiles, -1_500_000, -500_000, 1024)).toEqual([[-1_500_000, -tileSpan(10)], [-tileSpan(10), -500_000]]);
    // Coarser ones replace them as well.
    expect(covered(tiles, -1_400_000, -1_399_000, 1)).toEqual([[-1_400_000, -1_399_000]]);
  });

  it("that were requested before times moved are ignored", () => {
    const { server, tiles } = make();
    tiles.want([7], 0, 1e6, 1024);
    tiles.clear();
    server.answer(1, 7, 0, 1e6);
    expect(covered(tiles, 0, 1e6, 1024)).toEqual([]);
    tiles.want([7], 0, 1e6, 1024);
    expect(server.asked.filter(({ kind }) => kind === "lanes").length).toBe(2);
  });

  it("are requested once, and replace finer ones until these arrive", () => {
    const { server, tiles } = make();
    tiles.want([7], 0, 1e6, 1024);
    tiles.want([7], 0, 1e6, 1024);
    expect(server.asked.length).toBe(1);
    expect(tiles.settled).toBe(false);
    server.answer(1, 7, 0, 1e6);
    expect(tiles.settled).toBe(true);
    tiles.want([7], 0, 4000, 4);
    expect(tiles.settled).toBe(false);
    expect(covered(tiles, 0, 4000, 4)).toEqual([[0, 4000]]);
    server.answer(2, 7, 0, 4000);
    expect(tiles.settled).toBe(true);
    expect(covered(tiles, 0, 4000, 4)).toEqual([[0, 4000]]);
  });

  it("are drawn until newer ones arrive", () => {
    const { server, tiles } = make();
    tiles.want([7], 0, 2 * tileSpan(10), 1024);
    server.answer(1, 7, 0, 10, tileSpan(10));
    server.answer(2, 7, tileSpan(10), tileSpan(10) + 10, tileSpan(10));
    server.answer(3, 7, 2 * tileSpan(10), 2 * tileSpan(10) + 10, tileSpan(10));
    expect(tiles.settled).toBe(true);
    tiles.markOutdated(false);
    tiles.want([7], 0, 2 * tileSpan(10), 1024);
    // The first one was read completely, and refreshes can wait.
    const again = server.asked.slice(3).map(({ url }) => new URL(url).searchParams);
    expect(again.map((query) => [Number(query.get("from")), query.get("again")])).toEqual([[tileSpan(10), "1"], [2 * tileSpan(10), "1"]]);
    expect([tiles.isComplete, tiles.settled]).toEqual([true, false]);
    server.answer(4, 7, 0, 10);
    server.answer(5, 7, 0, 10);
    expect(tiles.settled).toBe(true);
    tiles.markOutdated();
    tiles.want([7], 0, 2 * tileSpan(10), 1024);
    expect([tiles.isComplete, tiles.settled, server.asked.length]).toEqual([true, false, 7]);
  });

  it("of another level are no longer awaited", () => {
    const { server, tiles } = make();
    tiles.want([7], 0, 1e6, 1024);
    tiles.want([7], 0, 1e3, 1);
    expect(server.asked.map((message) => message.kind)).toEqual(["lanes", "abort", "lanes"]);
  });

  it("whose requests fail are reported, not empty, and requested again after a second", () => {
    vi.useFakeTimers();
    const { server, tiles } = make();
    tiles.want([7, 8], 0, 1e6, 1024);
    server.fail(1, "no room");
    expect([...tiles.failures()]).toEqual([7, 8].map((lane) => ({ lane, from: 0, to: tileSpan(10) })));
    expect([tiles.error, tiles.isComplete, covered(tiles, 0, 1e6, 1024).length]).toEqual(["no room", false, 0]);
    // Redraws do not request them earlier.
    tiles.want([7, 8], 0, 1e6, 1024);
    expect(server.asked.length).toBe(1);
    vi.advanceTimersByTime(1000);
    expect(server.asked.length).toBe(2);
    server.fail(2, "still no room");
    tiles.want([7, 8], 0, 1e6, 1024);
    expect([tiles.error, server.asked.length]).toEqual(["still no room", 2]);
    vi.advanceTimersByTime(1000);
    server.answer(3, 7, 0, 1e6);
    expect([tiles.error, [...tiles.failures()], tiles.settled]).toEqual(["", [], true]);
    vi.useRealTimers();
  });

  it("whose refresh fails stay, and unwanted ones are not awaited", () => {
    vi.useFakeTimers();
    const { server, tiles } = make();
    tiles.want([7], 0, 1e6, 1024);
    server.answer(1, 7, 0, 1e6);
    tiles.markOutdated();
    tiles.want([7], 0, 1e6, 1024);
    server.fail(2, "no room");
    expect(covered(tiles, 0, 1e6, 1024)).toEqual([[0, 1e6]]);
    expect([...tiles.failures()].length).toBe(1);
    tiles.want([7], 0, 1e3, 1);
    expect([tiles.error, [...tiles.failures()].length]).toEqual(["", 0]);
    vi.useRealTimers();
  });

  it("cover a range in order and without overlap, whatever is present", () => {
    const { server, tiles } = make();
    tiles.want([7], 0, 3 * tileSpan(4), 16);
    server.answer(1, 7, 0, 10);
    server.answer(3, 7, 2 * tileSpan(4), 3 * tileSpan(4));
    tiles.want([7], 0, tileSpan(12), 4096);
    const found = covered(tiles, 0, 3 * tileSpan(4), 16);
    found.forEach(([from, to], at) => {
      expect(to).toBeGreaterThan(from);
      expect(from).toBeGreaterThanOrEqual(found[at - 1]?.[1] ?? 0);
    });
  });
});

describe("an incident", () => {
  const incident = { begin: 3000, end: 6000, limit: 1000, tid: 55, name: "controller", job: null, verdict: null, culprits: [] };

  it("is shown with its thread measured", () => {
    expect(link.write(link.ofIncident(incident))).toBe("v=2000,7000&a=3000,6000&at=thread:55&t=selection");
  });

  it("is summarized in a line", () => {
    const plain = (text: string): string => text.replaceAll("\u202f", " ");
    expect(plain(incidentText(incident))).toBe("controller ran 3 µs late");
    expect(plain(incidentText({ ...incident, job: "motor:control" }))).toBe("motor:control took 3 µs of 1 µs");
  });

  it("is shown by an empty link, also in a picture", () => {
    for (const hash of ["", "#png"]) expect(link.initialState(hash, incident)).toEqual(link.ofIncident(incident));
    expect(link.initialState("#v=1,2", incident)).toEqual({ begin: 1, end: 2 });
    expect(link.initialState("#png", null)).toEqual({});
    expect(link.initialState("#png=1280x720", incident)).toEqual(link.ofIncident(incident));
    expect(link.initialState("#png=1280x720&v=5,9&p=thread%3A7", incident)).toEqual({ begin: 5, end: 9, pinned: ["thread:7"] });
    expect(link.picture("#png=1280x720&v=5,9")).toEqual({ width: 1280, height: 720, theme: "light" });
    expect(link.picture("#png=800x600,dark&v=5,9")).toEqual({ width: 800, height: 600, theme: "dark" });
    expect(link.picture("#png")).toEqual({ width: 1600, height: 900, theme: "light" });
    expect(["#v=5,9", "#pngs", "#png=1x1,light", ""].map(link.picture)).toEqual([null, null, null, null]);
  });
});

describe("names from right to left", () => {
  const [start, end, override] = ["\u2068", "\u2069", "\u202e"];

  it("are isolated from what is beside them, and others are unchanged", () => {
    expect(shorten("controller", 80)).toBe("controller");
    expect(isolate(`${override}<b>ev`)).toBe(`${start}${override}<b>ev${end}`);
    expect(shorten("שלום", 80)).toBe(`${start}שלום${end}`);
  });

  it("do not end an isolation around them, and leave none open", () => {
    expect(isolate(`a${end}${override}b`)).toBe(`${start}a${override}b${end}`);
    expect(isolate(`a${start}${override}b`)).toBe(`${start}a${start}${override}b${end}${end}`);
  });

  it("are isolated in the sentence that gives the cause", () => {
    const name = `${override}<b>ev`;
    const why = `preempted by ${name} (tid 4643) on CPU 1`;
    expect(whyText({ why })).toBe(`preempted by ${start}${name}${end} (tid 4643) on CPU 1`);
    expect(whyText({ why: "preempted by find (tid 5)" })).toBe("preempted by find (tid 5)");
    expect(whyText({})).toBe("");
  });
});

describe("several traces", () => {
  it("have as many folders before their names as make them distinct", () => {
    const part = (path: string, name = path.split("/").at(-1)!): { name: string; path: string } => ({ name, path });
    const [first, second, program] = [part("/r/rec-a/kernel"), part("/r/rec-b/kernel"), part("/r/rec-b/user/app-7", "user/app-7")];
    expect(namesOf([first, program])).toEqual(["kernel", "user/app-7"]);
    expect(namesOf([first, second, program])).toEqual(["rec-a/kernel", "rec-b/kernel", "rec-b/user/app-7"]);
    expect(namesOf([first, first])).toEqual(["r/rec-a/kernel", "r/rec-a/kernel"]);
    expect(namesOf([part("/x/rec/kernel"), part("/y/rec/kernel")])).toEqual(["x/rec/kernel", "y/rec/kernel"]);
    expect(namesOf([{ name: "clock", path: "/r/a" }, { name: "clock", path: "/r/b" }])).toEqual(["a/clock", "b/clock"]);
  });

  it("are shifted by milliseconds only", () => {
    expect([offsetOf("-2.5"), offsetOf(" 1,5 "), offsetOf("0")]).toEqual([-2.5e6, 1.5e6, 0]);
    for (const typed of ["abc", "NaN", "", "1e99", "Infinity"]) expect(offsetOf(typed)).toBe(`expected milliseconds, such as -2.5, at most 104 days of them; found “${typed}”`);
  });
});

describe("a neighbour of the selection", () => {
  it("is described by its duration, or the distance of an event", () => {
    const plain = (text: string): string => text.replaceAll("\u202f", " ");
    const here = { begin: 5000, end: 5000 };
    expect(plain(neighbourText(here, { begin: 2000, end: 2000 }))).toBe("3 µs earlier");
    expect(plain(neighbourText(here, { begin: 9000, end: 9000 }))).toBe("4 µs later");
    expect(plain(neighbourText(here, { begin: 1000, end: 3000 }))).toBe("2 µs");
  });
});

describe("problems of a trace", () => {
  it("are shortened in the header: first part, no folders", () => {
    expect(brief("/tmp/long/way/to/rec-a is not there any more; what is known of it is shown")).toBe("gone: rec-a");
    expect(brief("expected a packet in /tmp/way/channel0_1, found nothing")).toBe("expected a packet in channel0_1, found nothing");
    expect(brief("the index cannot be written: no space left")).toBe("the index cannot be written: no space left");
  });
});

describe("a lane that is scrolled below pinned rows", () => {
  it("is invisible and has no arrows", () => {
    const lane = { id: 1, kind: "thread" } as const;
    const place = (y: number, pinned: boolean): Parameters<typeof isVisible>[0] => ({ slot: { lane, y: 3, height: 17, small: false }, y, pinned });
    expect([isVisible(place(40, false), 60), isVisible(place(55, false), 60), isVisible(place(40, true), 60), isVisible(place(55, true), 60)]).toEqual([false, true, true, false]);
    expect(isVisible(place(0, false), 0)).toBe(true);
  });
});
