// Made-up data for the mock server: a small machine, always the same.

/** Reproducible generator of numbers (mulberry32). */
export function numbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
  };
}

const END = 400_000_000;
const NAMES = ["find", "irq/9-acpi", "kworker/0:1", "db-writer", "planner", "<b>bold</b>", "rcu_preempt", "compositor"];
const CALLS = ["futex", "read", "write", "openat", "poll", "clock_nanosleep"];

/** Threads that take turns on CPUs, with their calls, spans and events. */
export function machine(cpus = 4, end = END) {
  const random = numbers(7);
  const lanes = new Map();
  const lane = (id, kind, extra = {}) => {
    const made = { id, kind, boxes: [], ...extra };
    lanes.set(id, made);
    return made;
  };
  const threads = NAMES.map((name, at) => ({
    name,
    tid: 100 + at,
    state: lane(1000 + at * 10, "thread"),
    calls: lane(1001 + at * 10, "syscall"),
    spans: [lane(1002 + at * 10, "span"), lane(1003 + at * 10, "span")],
    marks: lane(1004 + at * 10, "marks"),
  }));
  for (let cpu = 0; cpu < cpus; cpu++) {
    const [interrupts, soft, main] = [lane(10 + cpu * 3, "interrupt"), lane(11 + cpu * 3, "softirq"), lane(12 + cpu * 3, "cpu")];
    let time = 0;
    while (time < end) {
      const length = Math.ceil(1000 + random() ** 6 * 6_000_000);
      const thread = random() < 0.35 ? null : threads[Math.floor(random() * 2) * cpus + cpu];
      main.boxes.push([time, time + length, thread ? 2 : 1, thread ? thread.name : `swapper/${cpu}`]);
      if (thread) run(thread, time, time + length, cpu, random);
      if (random() < 0.2) interrupts.boxes.push([time, time + Math.min(length, 4000), 10, "nvme0q1"]);
      if (random() < 0.2) soft.boxes.push([time + 4000, time + 4000 + Math.min(length, 9000), 11, "TIMER"]);
      time += length;
    }
  }
  for (const thread of threads) fillGaps(thread, end, random);
  const counter = lane(900, "counter", { points: [] });
  for (let time = 0, value = 4; time < end; time += 400_000) {
    value = Math.max(0, Math.min(17, value + Math.round((random() - 0.5) * 5)));
    counter.points.push([time, value]);
  }
  lane(950, "density");
  const idle = lane(910, "counter", { points: [] });
  for (let time = 0; time < end; time += 400_000) idle.points.push([time, 1_000_000 + ((time / 400_000) % 11)]);
  return { lanes, threads, end, cpus };
}

function run(thread, begin, end, cpu, random) {
  thread.state.boxes.push([begin, end, 2, `CPU ${cpu}`]);
  const call = CALLS[Math.floor(random() * CALLS.length)];
  if (random() < 0.4) thread.calls.boxes.push([begin, begin + (end - begin) / 2, 9, call]);
  if (random() < 0.7 && end - begin > 3000) {
    thread.spans[0].boxes.push([begin + 200, end - 200, 12, "handle_request"]);
    thread.spans[1].boxes.push([begin + 500, (begin + end) / 2, 12, random() < 0.5 ? "parse" : "query<orders>"]);
  }
  thread.marks.boxes.push([begin + 100, begin + 100, 14, "db:query_done"]);
}

function fillGaps(thread, end, random) {
  thread.state.boxes.sort((a, b) => a[0] - b[0]);
  const all = [];
  let time = 0;
  for (const box of thread.state.boxes) {
    if (box[0] > time) {
      const late = box[0] - Math.min(box[0] - time, 20_000 + random() ** 4 * 900_000);
      if (late > time) all.push([time, late, random() < 0.8 ? 5 : 6, "futex"]);
      all.push([late, box[0], random() < 0.5 ? 3 : 4, ""]);
    }
    if (box[0] >= time) all.push(box);
    time = Math.max(time, box[1]);
  }
  if (time < end) all.push([time, end, 5, "futex"]);
  thread.state.boxes = all;
}

/** Tree of tracks. */
export function tree(made) {
  const tracks = [{ id: 1, parent: -1, kind: "group", name: "CPUs of made-up" }];
  for (let cpu = 0; cpu < made.cpus; cpu++) {
    const lanes = [{ id: 10 + cpu * 3, kind: "interrupt", depth: 0 }, { id: 11 + cpu * 3, kind: "softirq" }, { id: 12 + cpu * 3, kind: "cpu" }];
    tracks.push({ id: 2 + cpu, parent: 1, kind: "cpu", name: `CPU ${cpu}`, cpu, lanes });
  }
  tracks.push({ id: 20, parent: -1, kind: "process", name: "server", pid: 100 });
  made.threads.forEach((thread, at) => {
    const lanes = [thread.state, thread.calls, ...thread.spans, thread.marks].map((lane, depth) => ({ id: lane.id, kind: lane.kind, depth: Math.max(0, depth - 2) }));
    tracks.push({ id: 21 + at, parent: 20, kind: "thread", name: thread.name, tid: thread.tid, pid: 100, busy: 10 - at, lanes });
  });
  tracks.push({ id: 90, parent: -1, kind: "counter", name: "db:queue_length", unit: "", lanes: [{ id: 900, kind: "counter", min: 0, max: 17 }] });
  tracks.push({ id: 91, parent: -1, kind: "counter", name: "db:rows", unit: "rows", lanes: [{ id: 910, kind: "counter", min: 1_000_000, max: 1_000_010 }] });
  tracks.push({ id: 95, parent: -1, kind: "channel", name: "kernel/channel0", lanes: [{ id: 950, kind: "density" }] });
  return tracks;
}
