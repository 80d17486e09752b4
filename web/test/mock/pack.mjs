// Encodes lanes as the server does, see crates/viewer/src/api/lanes.rs.

/** Encodes an answer. Lanes have `boxes` (five numbers each), or `points` or `bins` (four each). */
export function pack({ from, to, known = 2 ** 60, lanes, labels }) {
  const parts = lanes.map((lane) => (lane.boxes ? boxes(lane.boxes) : numbers(lane.points ?? lane.bins)));
  const told = lanes.map(({ id, boxes, points }, at) => [id, boxes ? "boxes" : points ? "points" : "bins", parts[at].count]);
  const head = padded(Buffer.from(JSON.stringify({ from, to, known, lanes: told, labels })), 4, " ");
  const length = Buffer.alloc(4);
  length.writeUInt32LE(head.length);
  const all = Buffer.concat([length, head, ...parts.map(({ bytes }) => bytes)]);
  return all.buffer.slice(all.byteOffset, all.byteOffset + all.length);
}

function padded(bytes, before, fill) {
  return Buffer.concat([bytes, Buffer.alloc((8 - ((before + bytes.length) % 8)) % 8, fill)]);
}

function boxes(flat) {
  const count = flat.length / 5;
  const every = (which) => Array.from({ length: count }, (_, at) => flat[5 * at + which]);
  const times = Float64Array.from({ length: 2 * count }, (_, at) => flat[5 * (at >> 1) + (at & 1)]);
  const rest = [Int32Array.from(every(3)), Uint32Array.from(every(4)), Uint8Array.from(every(2))];
  return { count, bytes: padded(Buffer.concat([times, ...rest].map((array) => Buffer.from(array.buffer))), 0, 0) };
}

function numbers(flat) {
  return { count: flat.length / 4, bytes: Buffer.from(Float64Array.from(flat).buffer) };
}
