// Picture of all lanes, pixel by pixel. The browser's canvas takes a whole picture as fast as
// memory is copied. Lines and rectangles it draws later, on the page's thread too: a shape of a
// thousand bars takes 90 ms.

import { mix, type Packed } from "./colours";

/** Visible rows of the picture: from `top` up to `bottom`. */
export interface Clip {
  top: number;
  bottom: number;
}

export class Picture {
  width = 1;
  height = 1;
  pixels = new Uint32Array(1);
  /** Rows that are painted now; others stay as they are. */
  private clip: Clip = { top: 0, bottom: 1 };
  private image = new ImageData(1, 1);
  /** A row of each background colour, with the ruler's marks in it. */
  private readonly grounds = new Map<Packed, Uint32Array>();
  private marks: { at: readonly number[]; wide: number; colour: Packed } = { at: [], wide: 1, colour: 0 };

  /** Begins a frame of this size, with the ruler's marks at these columns. */
  begin(width: number, height: number, marks: { at: readonly number[]; wide: number; colour: Packed }): void {
    if (this.image.width !== width || this.image.height !== height) {
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      [this.width, this.height] = [width, height];
    }
    this.marks = marks;
    this.grounds.clear();
    this.clipTo({ top: 0, bottom: height });
  }

  clipTo({ top, bottom }: Clip): void {
    this.clip = { top: Math.max(0, top), bottom: Math.min(this.height, bottom) };
  }

  /** The visible rows between two heights. */
  private visible(top: number, bottom: number): Clip {
    return { top: Math.max(this.clip.top, top), bottom: Math.min(this.clip.bottom, bottom) };
  }

  /** A row of background pixels. */
  ground(colour: Packed): Uint32Array {
    const known = this.grounds.get(colour);
    if (known !== undefined) return known;
    const row = new Uint32Array(this.width).fill(colour);
    const { at, wide, colour: line } = this.marks;
    for (const x of at) row.fill(mix(colour, line, 0.7), Math.max(0, x), Math.max(0, x + wide));
    this.grounds.set(colour, row);
    return row;
  }

  /** Copies a row of pixels into each row between two heights. */
  rows(row: Uint32Array, top: number, bottom: number): void {
    const visible = this.visible(top, bottom);
    for (let y = visible.top; y < visible.bottom; y++) this.pixels.set(row, y * this.width);
  }

  /** Mixes a share of a colour into one column between two heights. */
  column(x: number, top: number, bottom: number, colour: Packed, share: number): void {
    const { pixels, width } = this;
    const visible = this.visible(top, bottom);
    for (let y = visible.top; y < visible.bottom; y++) pixels[y * width + x] = share >= 1 ? colour : mix(pixels[y * width + x] ?? 0, colour, share);
  }

  /** Hands the picture to the canvas. */
  put(drawing: CanvasRenderingContext2D): void {
    drawing.putImageData(this.image, 0, 0);
  }
}
