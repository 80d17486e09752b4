// Mock server with made-up data: for work on the page without a trace, and for cases that no trace
// at hand has (names that are HTML, losses, a server that fails).
//
//   node test/mock/server.mjs [PORT]

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { machine, tree } from "./data.mjs";
import { pack } from "./pack.mjs";

const PAGE = process.env.TOMPION_PAGE ?? fileURLToPath(new URL("../../../crates/viewer/page", import.meta.url));
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css" };
const LOST = [120_000_000, 126_000_000];

const made = machine();
let [notes, version] = [[], 1];
const offsets = [0, 0];
/** Number of threads in statistics. The server lists a thousand unless more are requested. */
const CROWD = 2500;

function boxes(lane, from, to, width, labels) {
  const pixel = Math.max(1, (to - from) / width);
  const flat = [];
  let pending = null;
  const flush = () => {
    if (pending === null) return;
    flat.push(pending.begin, pending.end, pending.style, pending.label, pending.count);
    pending = null;
  };
  for (const [begin, end, style, name] of lane.boxes) {
    if (end < from || begin >= to) continue;
    if (!labels.has(name)) labels.set(name, labels.size);
    const label = name === "" ? -1 : labels.get(name);
    if (end - begin >= pixel) {
      flush();
      flat.push(Math.round(begin), Math.round(end), style, label, 1);
    } else if (pending !== null && begin < pending.begin + pixel) {
      pending.end = Math.max(pending.end, end);
      pending.count += 1;
    } else {
      flush();
      pending = { begin: Math.round(begin), end: Math.round(end), style, label, count: 1 };
    }
  }
  flush();
  return flat;
}

function bins(from, to, width) {
  const flat = [];
  const pixel = (to - from) / width;
  for (let at = 0; at < width; at++) {
    const time = from + at * pixel;
    if (time > made.end || time < 0) continue;
    const lost = time + pixel > LOST[0] && time < LOST[1] ? 40 : 0;
    flat.push(Math.round(time), lost ? 3 : Math.round(20 + 18 * Math.sin(time / 9e6)), lost, time < 20e6 ? 5 : 0);
  }
  return flat;
}

function points(lane, from, to) {
  const inside = lane.points.filter(([time]) => time >= from - 400_000 && time < to);
  return inside.flatMap(([time, value]) => [time, value, value, value]);
}

/** Offset of a lane. Lanes of threads belong to the second trace. */
function offsetOf(id) {
  return offsets[id >= 1000 ? 1 : 0];
}

/** First number of the channels that tests add, and the one of them that lost events. */
const [MANY, LOSER] = [5000, 5044];

function manyBins(id, from, to, width) {
  const pixel = (to - from) / width;
  const at = Math.floor((350_000_000 - from) / pixel);
  return id === LOSER && at >= 0 && at < width ? [Math.round(from + at * pixel), 1, 9, 0] : [];
}

function lanes(query) {
  const [from, to, width] = ["from", "to", "width"].map((name) => Number(query.get(name)));
  const labels = new Map();
  const moved = (flat, step, times, by) => flat.map((value, at) => (at % step < times ? value + by : value));
  const found = query.get("ids").split(",").map(Number).filter((id) => made.lanes.has(id) || id >= MANY).map((id) => {
    if (id >= MANY) return { id, bins: manyBins(id, from, to, width) };
    const [lane, by] = [made.lanes.get(id), offsetOf(id)];
    if (lane.kind === "density") return { id, bins: moved(bins(from - by, to - by, width), 4, 1, by) };
    if (lane.kind === "counter") return { id, points: moved(points(lane, from - by, to - by), 4, 1, by) };
    return { id, boxes: moved(boxes(lane, from - by, to - by, width, labels), 5, 2, by) };
  });
  return { from, to, lanes: found, labels: [...labels.keys()] };
}

function at(query) {
  const [id, time] = [Number(query.get("lane")), Number(query.get("time"))];
  const lane = made.lanes.get(id);
  if (lane?.kind === "counter") return counterAt(lane, time);
  if (lane?.kind === "density") return densityAt(time);
  const number = lane?.boxes.findIndex(([begin, end]) => Math.round(begin) <= time && Math.max(Math.round(end), Math.round(begin) + 1) > time) ?? -1;
  if (number < 0) return { lane: id, none: true, before: null, after: null };
  const box = ([begin, end, style, label]) => ({ begin: Math.round(begin), end: Math.round(end), style, label });
  const thread = made.threads.find((one) => one.state.id === id);
  const answer = { lane: id, track: 21, state: "", before: null, after: null, ...box(lane.boxes[number]), seen: [true, true], cpu: 1, fields: [["prev_comm", "<img src=x onerror=alert(1)>"], ["prio", "20"]] };
  if (thread) answer.thread = { tid: thread.tid, name: thread.name, lane: id, track: 21, pid: null };
  if (number > 0) answer.before = box(lane.boxes[number - 1]);
  if (number + 1 < lane.boxes.length) answer.after = box(lane.boxes[number + 1]);
  if (answer.style === 4) {
    answer.why = "preempted by irq/9-acpi (tid 101) on CPU 1";
    answer.culprit = { tid: 101, name: "irq/9-acpi", pid: null, lane: 1010, track: 22, time: answer.begin, ns: answer.end - answer.begin };
    answer.ran = [answer.culprit];
  }
  if (answer.style === 5) answer.waker = { tid: 103, name: "db-writer", pid: null, lane: 1030, track: 24, time: answer.end };
  return answer;
}

function counterAt({ id, points }, time) {
  const number = points.findLastIndex(([begin]) => begin <= time);
  if (number < 0) return { lane: id, none: true, before: null, after: null };
  const [begin, value] = points[number];
  const values = points.map(([, one]) => one);
  return { lane: id, track: id === 900 ? 90 : 91, style: 19, state: "counter", before: null, after: null, label: id === 900 ? "db:queue_length" : "db:rows", begin, end: points[number + 1]?.[0] ?? made.end, seen: [true, true], value, range: [Math.min(...values), Math.max(...values)], fields: [["event", "db:queue_length"]] };
}

function densityAt(time) {
  const isLost = time >= LOST[0] && time <= LOST[1];
  const [begin, end] = isLost ? LOST : [time - 1000, time + 1000];
  return { lane: 950, track: 95, style: isLost ? 15 : 20, state: isLost ? "lost" : "events", before: null, after: null, fields: [], label: "kernel/channel0", begin, end, seen: [true, true], counts: { events: 312, lost: isLost ? 40 : 0, overwritten: 0 } };
}

function step(query) {
  const [id, time, dir] = ["lane", "time", "dir"].map((name) => Number(query.get(name)));
  const all = made.lanes.get(id)?.boxes ?? [];
  const next = dir === 1 ? all.find(([begin]) => Math.round(begin) > time) : all.findLast(([begin]) => Math.round(begin) < time);
  return next === undefined ? { none: true } : { begin: Math.round(next[0]), end: Math.round(next[1]) };
}

function events(query) {
  const filter = query.get("filter") ?? "";
  if (filter.includes("&&&")) return { rows: [], total: 0, bad: "expected a condition after `&&`" };
  // Some tracks have fewer events.
  const total = query.has("tracks") ? 1_000_000 : 100_000_000;
  const [row, count] = [Number(query.get("row") ?? 0), Number(query.get("count") ?? 100)];
  const begin = Math.floor((Number(query.get("from") ?? 0) / made.end) * total);
  const rows = [];
  for (let number = row + begin; number < Math.min(total, row + begin + count); number++) {
    rows.push({ row: number, time: Math.round((number / total) * made.end), cpu: number % 4, tid: 100 + (number % 8), name: number % 3 ? "sched_switch" : "<i>html</i>", text: `a = ${number}, b = "<script>alert(1)</script>"`, lane: 1000, trace: 0 });
  }
  return { rows, total };
}

function durations(name) {
  const longest = { lane: 1002, begin: 50_000_000, end: 56_000_000 };
  const histogram = [1, 6, 20, 44, 31, 12, 4, 0, 1].map((count, at) => [1000 * 2 ** at, 1000 * 2 ** (at + 1), count, count ? longest : null]);
  return { name, count: 119, merged: 0, unfinished: 0, unfinished_total: 0, min: 1000, p50: 12_000, p90: 60_000, p99: 200_000, max: 6_000_000, total: 9_000_000, longest, histogram };
}

const COUNTS = [["sched_switch", 4711], ["<u>name</u>", 12]];

/** Number of count requests. Each counts half of the area. */
let looks = 0;

function counts() {
  looks += 1;
  const goesOn = looks % 2 === 1;
  return { events: goesOn ? COUNTS.slice(0, 1) : COUNTS, known: made.end, continue: goesOn, scanned: goesOn ? 0.5 : 1 };
}

function select(query) {
  const duration = Number(query.get("to")) - Number(query.get("from"));
  const most = Number(query.get("most") ?? 1000);
  const threads = Array.from({ length: Math.min(most, CROWD) }, (_, at) => {
    const thread = made.threads[at] ?? { name: `worker ${at}`, tid: 1000 + at };
    return { track: at < made.threads.length ? 21 + at : 21, name: thread.name, tid: thread.tid, pid: 100, lane: 1000, running: duration / (at + 2), ready: duration / 30, preempted: duration / 40, blocked: duration / 3, io: duration / 20, stopped: 0, unknown: 0, mixed: 0 };
  });
  const wait = { lane: 1000, track: 21, name: "find", tid: 100, pid: 100, begin: 100_000, end: 900_000, style: 4, why: "preempted by irq/9-acpi (tid 101) on CPU 1" };
  return { duration, events: query.has("tracks") ? null : COUNTS, threads, cpus: [0, 1, 2, 3].map((cpu) => ({ cpu, track: 2 + cpu, busy: duration * 0.4, idle: duration * 0.6, unknown: 0, mixed: 0, interrupts: 100_000 })), spans: [durations("handle_request"), durations("parse")], syscalls: [durations("futex")], interrupts: [durations("nvme0q1")], waits: [wait], losses: { events: 40, overwritten: 0 }, partial: false, narrow: 0, exact: duration, known: made.end, counts: { threads: CROWD, spans: 2, syscalls: 1, interrupts: 1 } };
}

const FLAME = { nodes: [
  { name: "main", depth: 0, total: 1000, self: 100, count: 1, parent: -1 },
  { name: "handle_request", depth: 1, total: 700, self: 200, count: 40, parent: 0 },
  { name: "parse", depth: 2, total: 300, self: 300, count: 40, parent: 1 },
  { name: "query<orders>", depth: 2, total: 200, self: 200, count: 12, parent: 1 },
  { name: "idle", depth: 1, total: 200, self: 200, count: 3, parent: 0 },
] };

function trace() {
  const part = (id) => ({ id, path: `/traces/${id}`, name: id ? "user" : "kernel", tracer: "tompion", host: "made-up", begin: offsets[id], end: made.end + offsets[id], offset: offsets[id], events: 1000 });
  const [begin, end] = [Math.min(...offsets), made.end + Math.max(...offsets)];
  return { version: 1, generation: 1, glimpses: 0, seen: [], lanes: made.lanes.size, gone: null, error: null, incident: null, commands: [], processes: [], base: "1457113582794565804", begin, end, progress: 1, growing: false, name: "made-up <b>trace</b>", traces: [part(0), part(1)], events: 100_000_000, losses: { events: 40, packets: 0, overwritten: 7 }, damages: [], disorders: [], timezone_offset_s: 3600, kept: "/traces/.tompion-view" };
}

const ANSWERS = {
  trace, lanes, at, step, events, select, counts,
  tracks: () => ({ tracks: tree(made), generation: 1, progress: 1 }),
  arrows: () => ({ arrows: [50_000_000, 1030, 50_200_000, 1000, 0, 90_000_000, 1000, 90_500_000, 1040, 0], more: false }),
  search: (query) => (query.get("q").includes("&&&") ? { none: true, scanned: 5, bad: "expected a condition after `&&`" } : query.get("q") === "endless" ? { none: true, scanned: 5, continue: Number(query.get("from")) + 1 } : query.get("q") === "none" ? { none: true, scanned: 5 } : { time: Math.min(made.end, Number(query.get("from")) + 5_000_000), row: 1, name: "sched_switch", text: "", cpu: 0, tid: 100, lane: 1000, trace: 0 }),
  flame: () => ({ ...FLAME, partial: false, cut: false, known: made.end }),
  notes: () => ({ version: String(version), notes, remark: null }),
  export: () => ({ path: "/traces/part", events: 12, bytes: 3456 }),
  exporting: () => ({ share: 1, bytes: 3456, failed: false }),
};

async function body(request) {
  let text = "";
  for await (const part of request) text += part;
  return JSON.parse(text);
}

async function file(path, response) {
  const name = path === "/" ? "index.html" : path.slice(1).replaceAll("..", "");
  try {
    const bytes = await readFile(`${PAGE}/${name}`);
    response.writeHead(200, { "Content-Type": TYPES[name.split(".").at(-1)] ?? "text/plain", "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:" });
    response.end(bytes);
  } catch {
    response.writeHead(404).end("no such file");
  }
}

/** Starts the server. Returns its address. */
export function start(port = 0) {
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    const name = url.pathname.replace(/^\/api\//, "");
    if (!url.pathname.startsWith("/api/")) return file(url.pathname, response);
    if (request.method === "POST") {
      const said = await body(request);
      if (name === "notes") {
        if (said.version !== String(version)) return response.writeHead(409).end('{"error":"others have written notes meanwhile"}');
        [notes, version] = [said.notes, version + 1];
        return response.end(JSON.stringify({ version: String(version), remark: null }));
      }
      if (name === "offset") offsets[said.trace] = said.offset_ns;
      return response.end("{}");
    }
    const answer = ANSWERS[name];
    if (answer === undefined) return response.writeHead(404).end('{"error":"no such request"}');
    const drawn = name === "lanes";
    response.writeHead(200, { "Content-Type": drawn ? "application/octet-stream" : "application/json" });
    const value = answer(url.searchParams);
    return response.end(drawn ? Buffer.from(pack(value)) : JSON.stringify(value));
  });
  return new Promise((resolve) => {
    server.listen(port, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}/`, stop: () => server.close() }));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start(Number(process.argv[2] ?? 0));
  console.log(url);
}
