// Exports: a smaller trace, CSV, a picture.

import { api, reason } from "../data/api";
import { type App, type Area, rangeOf } from "../app";
import { button, byId, el } from "../dom";
import { grouped, sizeText } from "../data/time";

/** Interval of progress requests, and the time after which they end, in milliseconds. */
const PROGRESS_INTERVAL = 300;
const PROGRESS_TIMEOUT = 3_600_000;

function download(href: string, name: string): void {
  const anchor = el("a", { attributes: { href, download: name } });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}

/** Buttons that export an area. */
export function exportButtons(app: App, area: Area): HTMLButtonElement[] {
  const what = area.all ? "The events in this time range" : "The events of these tracks in this time range";
  const trace = button("Save as trace", `${what}, as a smaller trace next to this one`, () => void saveTrace(app, area));
  const csv = button("CSV", `${what} as a table`, () => void saveTable(app, area));
  const png = button("PNG", "The picture on the screen", () => void savePicture(app));
  return [trace, csv, png];
}

/** Random ID of an export, by which its progress is requested. */
function newId(): string {
  return crypto.getRandomValues(new Uint32Array(2)).join("-");
}

/** Shows the progress of an export until it is done. Returns its size if known. */
async function follow(app: App, [id, what]: [string, string], isDone: () => boolean): Promise<number | null> {
  for (;;) {
    await new Promise((done) => setTimeout(done, PROGRESS_INTERVAL));
    if (isDone()) return null;
    const { share, bytes, failed } = await api.exporting(id);
    if (isDone()) return null;
    if (failed) throw new Error(`the ${what} can't be written`);
    if (bytes !== null) return bytes;
    app.showMessage(`writing the ${what}, ${Math.floor(share * 100)} % …`);
  }
}

async function saveTable(app: App, area: Area): Promise<void> {
  const id = newId();
  app.showMessage("writing the table…");
  const began = performance.now();
  download(api.csvAddress(rangeOf(area), id), `${app.info.name}.csv`);
  try {
    const bytes = await follow(app, [id, "table"], () => performance.now() - began > PROGRESS_TIMEOUT);
    app.showMessage(bytes === null ? "" : `table saved: ${sizeText(bytes)}`);
  } catch (failure) {
    app.showMessage(`export failed: ${reason(failure)}`);
  }
}

async function saveTrace(app: App, area: Area): Promise<void> {
  const id = newId();
  app.showMessage("writing the smaller trace…");
  let done = false;
  const following = follow(app, [id, "smaller trace"], () => done).catch(() => null);
  try {
    const { path, events, bytes } = await api.exportCtf(rangeOf(area), id);
    done = true;
    await following;
    app.showMessage(`trace saved in ${path} (${grouped(events)} events, ${sizeText(bytes)})`);
  } catch (failure) {
    done = true;
    await following;
    app.showMessage(`export failed: ${reason(failure)}`);
  }
}

/** Saves the visible timeline as a picture. */
export async function savePicture(app: App): Promise<void> {
  const [names, ruler, stage] = [byId("names"), byId<HTMLCanvasElement>("ruler"), byId("stage")];
  const ratio = devicePixelRatio;
  const left = names.clientWidth;
  const top = ruler.clientHeight;
  const canvas = document.createElement("canvas");
  canvas.width = (left + stage.clientWidth) * ratio;
  canvas.height = (top + stage.clientHeight) * ratio;
  const drawing = canvas.getContext("2d");
  if (drawing === null) return;
  drawing.fillStyle = app.palette.ground;
  drawing.fillRect(0, 0, canvas.width, canvas.height);
  for (const [source, y] of [[ruler, 0], [byId<HTMLCanvasElement>("lanes"), top]] as const) {
    drawing.drawImage(source, left * ratio, y * ratio);
  }
  drawing.scale(ratio, ratio);
  drawing.fillStyle = app.palette.text;
  drawing.font = getComputedStyle(names).font;
  drawing.textBaseline = "middle";
  for (const row of names.querySelectorAll<HTMLElement>(".track:not([hidden])")) {
    const place = row.getBoundingClientRect();
    const home = names.getBoundingClientRect();
    const inset = Number.parseFloat(row.style.paddingLeft) + 16;
    const text = `${row.querySelector(".name")?.textContent ?? ""} ${row.querySelector(".number")?.textContent ?? ""}`;
    drawing.fillText(text, inset, top + place.top - home.top + place.height / 2, left - inset - 8);
  }
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (blob === null) return;
  const href = URL.createObjectURL(blob);
  download(href, `${app.info.name}.png`);
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}
