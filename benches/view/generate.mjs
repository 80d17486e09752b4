// Makes a kernel's trace of any size: eight processors on which threads take turns, wake each other
// and call the system.
//
//   node benches/view/generate.mjs EVENTS FOLDER [THREADS]

import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const CPUS = 8;
/** Threads of all processors, unless more or fewer are asked for. */
const THREADS = 4000;
/** Where there are fewer switches than this for each thread, they take turns in order, so that none
 * is left out. */
const FEW_SWITCHES = 2;
/** Bytes of a packet at most; one event has fewer than 64. */
const PACKET = 256 << 10;
const HEAD = 1 + 5 * 8 + 1;

/** The description that the viewer's tests have, too, but for the host and the clock. */
const METADATA = readFileSync(join(import.meta.dirname, "../../crates/viewer/tests/server/kernel.tsdl"), "utf8")
  .replace('"box"', '"generated"')
  .replace("offset = 0", "offset_s = 1700000000");

/** A processor's stream, packet by packet. */
class Stream {
  constructor(file, cpu, threads, isInOrder) {
    this.file = openSync(file, "w");
    this.cpu = cpu;
    this.threads = threads;
    this.isInOrder = isInOrder;
    this.switches = 0;
    this.bytes = Buffer.alloc(PACKET);
    this.at = HEAD;
    this.begin = 0;
    this.last = 0;
    this.state = cpu + 1;
    this.running = 0;
    this.time = cpu * 137;
  }

  /** The same numbers each time. */
  random() {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return this.state;
  }

  header(id, time) {
    if (this.at === HEAD) this.begin = time;
    this.bytes[this.at] = id;
    this.long(this.at + 1, time);
    this.at += 9;
    this.last = time;
  }

  long(at, value) {
    this.bytes.writeUInt32LE(value % 2 ** 32, at);
    this.bytes.writeUInt32LE(Math.floor(value / 2 ** 32), at + 4);
  }

  text(value) {
    this.at += this.bytes.latin1Write(value, this.at);
    this.bytes[this.at++] = 0;
  }

  int(value) {
    this.at = this.bytes.writeInt32LE(value, this.at);
  }

  name(thread) {
    return thread === 0 ? "swapper" : `w${thread % 40}`;
  }

  tid(thread) {
    return thread === 0 ? 0 : 1 + this.cpu * this.threads + thread;
  }

  /** The next event of four: woken, switched to, a call, its end. */
  event(step) {
    this.time += 200 + (this.random() >>> 20);
    if (step === 0) {
      const turn = this.isInOrder ? this.switches++ : this.random() >>> 8;
      this.next = 1 + (turn % (this.threads - 1));
      this.header(3, this.time);
      this.text(this.name(this.next));
      this.int(this.tid(this.next));
    } else if (step === 1) {
      this.header(0, this.time);
      this.text(this.name(this.running));
      this.int(this.tid(this.running));
      this.int(this.running === 0 ? 0 : 1);
      this.text(this.name(this.next));
      this.int(this.tid(this.next));
      this.running = this.next;
    } else {
      this.header(step === 2 ? 1 : 2, this.time);
      this.int(step);
    }
    if (this.at > PACKET - 64) this.flush();
  }

  flush() {
    if (this.at === HEAD) return;
    this.bytes[0] = 0;
    [this.begin, this.last, this.at * 8, this.at * 8, 0].forEach((value, place) => this.long(1 + 8 * place, value));
    this.bytes[41] = this.cpu;
    writeSync(this.file, this.bytes, 0, this.at);
    this.at = HEAD;
  }

  close() {
    this.flush();
    closeSync(this.file);
  }
}

/** Writes a trace of so many events, of at most so many threads. */
export function generate(events, folder, threads = THREADS) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "metadata"), METADATA);
  const isInOrder = events / 4 < FEW_SWITCHES * threads;
  for (let cpu = 0; cpu < CPUS; cpu++) {
    const stream = new Stream(join(folder, `channel0_${cpu}`), cpu, Math.floor(threads / CPUS), isInOrder);
    const count = Math.floor(events / CPUS) + (cpu < events % CPUS ? 1 : 0);
    for (let event = 0; event < count; event++) stream.event(event % 4);
    stream.close();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [events, folder, threads] = [Number(process.argv[2]), process.argv[3], Number(process.argv[4] ?? THREADS)];
  if (!Number.isInteger(events) || folder === undefined || !(threads >= 2 * CPUS)) {
    console.error("usage: node benches/view/generate.mjs EVENTS FOLDER [THREADS]");
    process.exit(2);
  }
  generate(events, folder, threads);
}
