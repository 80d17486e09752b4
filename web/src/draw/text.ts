// Text on canvases.

export const FONT = '11px "Inter", "Segoe UI", system-ui, "Noto Sans", "DejaVu Sans", sans-serif';

/** Longest text that is measured. */
const MAX_LETTERS = 200;
const MAX_CACHED_WIDTHS = 20_000;

/** Cuts texts to a width. Measuring a text takes longer than drawing it, so widths are cached. */
export class TextFitter {
  private readonly widths = new Map<string, number>();

  /** The part of a text that fits into a width; empty if that would say nothing. */
  fit(drawing: CanvasRenderingContext2D, text: string, room: number): string {
    const short = text.length > MAX_LETTERS ? text.slice(0, MAX_LETTERS) : text;
    let width = this.widths.get(short);
    if (width === undefined) {
      if (this.widths.size > MAX_CACHED_WIDTHS) this.widths.clear();
      width = drawing.measureText(short).width;
      this.widths.set(short, width);
    }
    if (width <= room) return short;
    const letters = Math.floor((short.length * room) / width) - 1;
    return letters < 2 ? "" : `${short.slice(0, letters)}…`;
  }
}
