// Patterns that tell slice styles apart without colour: diagonal stripes, and teeth.

import type { Palette } from "./colours";
import { Style } from "../data/wire";

/** Depth of a late job's teeth, in pixels. */
export const TEETH = 5;
const SIZE = 6;

/** Canvas patterns by theme and style, made on first use. */
export class Patterns {
  private readonly made = new Map<string, CanvasPattern>();

  /** The pattern of a style: stripes, or the teeth of late jobs. */
  of(drawing: CanvasRenderingContext2D, palette: Palette, style: number): CanvasPattern | string {
    const name = `${palette.theme}:${style}`;
    const known = this.made.get(name);
    if (known !== undefined) return known;
    const colour = palette.states[style] ?? palette.lost;
    const tile = new OffscreenCanvas(SIZE, style === Style.lateJob ? TEETH : SIZE);
    const stripes = tile.getContext("2d");
    if (stripes === null) return colour;
    if (style === Style.lateJob) teeth(stripes, palette.ground);
    else if (style === Style.runnablePreempted) diagonal(stripes, palette.stripes, 1.3, 0.5);
    else {
      stripes.fillStyle = style === Style.lost ? `${colour}55` : `${palette.ground}aa`;
      stripes.fillRect(0, 0, SIZE, SIZE);
      diagonal(stripes, colour, style === Style.lost ? 2 : 1.2, 1);
    }
    const pattern = drawing.createPattern(tile as unknown as CanvasImageSource, "repeat");
    if (pattern !== null) this.made.set(name, pattern);
    return pattern ?? colour;
  }
}

function diagonal(drawing: OffscreenCanvasRenderingContext2D, colour: string, width: number, alpha: number): void {
  drawing.strokeStyle = colour;
  drawing.globalAlpha = alpha;
  drawing.lineWidth = width;
  for (const shift of [-SIZE, 0, SIZE]) {
    drawing.beginPath();
    drawing.moveTo(shift - 1, SIZE + 1);
    drawing.lineTo(shift + SIZE + 1, -1);
    drawing.stroke();
  }
}

/** Teeth cut into the upper edge. */
function teeth(drawing: OffscreenCanvasRenderingContext2D, ground: string): void {
  drawing.fillStyle = ground;
  drawing.beginPath();
  drawing.moveTo(0, 0);
  drawing.lineTo(SIZE, 0);
  drawing.lineTo(SIZE / 2, TEETH);
  drawing.fill();
}
