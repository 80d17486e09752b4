// Draws lanes of slices: states, interrupts, spans, events.

import { inkOn } from "./colours";
import type { Decoration, LaneRenderer, LaneView } from "./lane_renderer";
import { TEETH, type Patterns } from "./patterns";
import type { Picture } from "./picture";
import { SliceStrip, UPPER_SHARE, type Decor } from "./slice_strip";
import { FONT, TextFitter } from "./text";
import { Style } from "../data/wire";

/** Lowest lane with labels, in CSS pixels. */
const MIN_LABELLED_HEIGHT = 12;

/** Draws slices with their patterns and names. */
export class SliceRenderer implements LaneRenderer {
  private readonly strip = new SliceStrip();
  private readonly texts = new TextFitter();

  constructor(
    private readonly picture: Picture,
    private readonly patterns: Patterns,
  ) {}

  begin(): void {
    this.strip.begin(this.picture.width);
  }

  paint(lane: LaneView): Decoration {
    const decor = this.strip.paint(lane);
    this.strip.copy(this.picture, lane);
    return (drawing) => {
      this.drawHatches(drawing, lane, decor);
      if (!lane.slot.small && lane.slot.height >= MIN_LABELLED_HEIGHT) this.drawLabels(drawing, lane, decor);
    };
  }

  private drawHatches(drawing: CanvasRenderingContext2D, { slot, y, palette }: LaneView, { hatches }: Decor): void {
    for (const style of new Set(hatches.map((hatch) => hatch.style))) {
      const isLow = slot.lane.kind === "thread" && style === Style.unknown;
      const top = isLow ? Math.round(slot.height * UPPER_SHARE) : 0;
      const height = style === Style.lateJob ? Math.min(TEETH, slot.height / 2) : slot.height - top;
      drawing.save();
      drawing.translate(0, y);
      drawing.fillStyle = this.patterns.of(drawing, palette, style);
      for (const hatch of hatches) if (hatch.style === style) drawing.fillRect(hatch.x / devicePixelRatio, top, hatch.width / devicePixelRatio, height);
      drawing.restore();
    }
  }

  private drawLabels(drawing: CanvasRenderingContext2D, { slot, y, palette, tiles }: LaneView, { labels }: Decor): void {
    drawing.font = FONT;
    drawing.textBaseline = "middle";
    const middle = y + slot.height / 2 + 0.5;
    const isMark = slot.lane.kind === "marks";
    for (const label of labels) {
      const x = Math.max(0, label.x / devicePixelRatio) + (isMark ? 4 : 5);
      const room = (label.x + label.width) / devicePixelRatio - x - 4;
      const text = this.texts.fit(drawing, tiles.labels[label.label] ?? "", room);
      if (text === "") continue;
      drawing.fillStyle = label.low || isMark ? palette.muted : inkOn(label.colour);
      drawing.fillText(text, x, label.low ? y + slot.height * UPPER_SHARE * 0.5 : middle);
    }
  }
}
