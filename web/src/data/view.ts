// Visible time range: its movements, with undo and redo.

export interface Span {
  begin: number;
  end: number;
}

/** Shortest visible range, in nanoseconds. */
const MIN_SPAN = 40;
/** Duration of an animation in milliseconds: the eye can follow, and the target is reached within
 * a tenth of a second. */
const ANIMATION_MS = 70;
/** Movements of a gesture that are closer than this, in milliseconds, are undone together. */
const GESTURE_PAUSE_MS = 500;
const MAX_UNDO = 200;

export class View {
  begin = 0;
  end = 1;
  /** Begin and end of the trace. */
  limits: Span = { begin: 0, end: 1 };
  private readonly past: Span[] = [];
  private readonly future: Span[] = [];
  private lastMove = Number.NEGATIVE_INFINITY;
  /** Time of the last movement. */
  moved = Number.NEGATIVE_INFINITY;
  private animation: { from: Span; to: Span; start: number } | null = null;

  constructor(
    private readonly changed: () => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  get span(): number {
    return this.end - this.begin;
  }

  get moving(): boolean {
    return this.animation !== null;
  }

  /** Range that is shown, or that will be shown after the animation. */
  get target(): Span {
    return this.animation?.to ?? { begin: this.begin, end: this.end };
  }

  /** Sets the trace's limits. A view of the whole trace follows them. */
  limit(begin: number, end: number): void {
    const whole = this.begin <= this.limits.begin && this.end >= this.limits.end;
    this.limits = { begin, end: Math.max(end, begin + MIN_SPAN) };
    if (whole) this.jump(this.whole());
  }

  /** The whole trace with a margin. */
  whole(): Span {
    const margin = (this.limits.end - this.limits.begin) * 0.01;
    return { begin: this.limits.begin - margin, end: this.limits.end + margin };
  }

  private bounded({ begin, end }: Span): Span {
    const whole = this.limits.end - this.limits.begin;
    const span = Math.min(Math.max(end - begin, MIN_SPAN), whole * 1.2 + MIN_SPAN);
    const middle = (begin + end) / 2;
    const margin = Math.max(Math.min(0.1 * whole, 0.5 * span), (span - whole) / 2);
    const [low, high] = [this.limits.begin - margin, this.limits.end + margin];
    const start = Math.min(Math.max(middle - span / 2, low), high - span);
    return { begin: start, end: start + span };
  }

  /** Saves the range for undo. The steps of one gesture are saved once. */
  private remember(gesture: boolean): void {
    const now = this.now();
    this.moved = now;
    if (!gesture || now - this.lastMove > GESTURE_PAUSE_MS) {
      this.past.push({ ...this.target });
      if (this.past.length > MAX_UNDO) this.past.shift();
      this.future.length = 0;
    }
    this.lastMove = gesture ? now : Number.NEGATIVE_INFINITY;
  }

  /** Moves at once, as dragging does. */
  set(span: Span): void {
    this.remember(true);
    this.jump(span);
  }

  private jump(span: Span): void {
    this.animation = null;
    ({ begin: this.begin, end: this.end } = this.bounded(span));
    this.changed();
  }

  /** Moves with an animation. */
  go(span: Span): void {
    this.remember(false);
    this.glide(span);
  }

  /** Performs one step of a gesture. */
  private follow(span: Span, smooth: boolean): void {
    this.remember(true);
    if (smooth) this.glide(span);
    else this.jump(span);
  }

  private glide(span: Span): void {
    this.animation = { from: { begin: this.begin, end: this.end }, to: this.bounded(span), start: this.now() };
    this.changed();
  }

  /** Scales the range by `factor`. The time `anchor` keeps its place on the screen. */
  zoom(factor: number, anchor: number, smooth = true): void {
    const { begin, end } = smooth ? this.target : this;
    const span = Math.max(MIN_SPAN, (end - begin) * factor);
    const share = (anchor - begin) / (end - begin);
    this.follow({ begin: anchor - share * span, end: anchor + (1 - share) * span }, smooth);
  }

  /** Moves by a share of the visible range. */
  pan(share: number, smooth = true): void {
    const { begin, end } = smooth ? this.target : this;
    const by = (end - begin) * share;
    this.follow({ begin: begin + by, end: end + by }, smooth);
  }

  /** Makes a range visible with a margin. Does nothing if it is visible already. */
  show(begin: number, end: number): void {
    const target = this.target;
    const length = end - begin;
    const fits = length <= (target.end - target.begin) * 0.8;
    if (fits && begin >= target.begin && end <= target.end) return;
    if (fits) {
      const half = (target.end - target.begin) / 2;
      const middle = (begin + end) / 2;
      this.go({ begin: middle - half, end: middle + half });
    } else {
      this.fit(begin, end);
    }
  }

  /** Fits a range to the screen. */
  fit(begin: number, end: number): void {
    const margin = Math.max((end - begin) * 0.15, MIN_SPAN / 4);
    this.go({ begin: begin - margin, end: end + margin });
  }

  /** Advances the animation. Returns whether it continues. */
  step(): boolean {
    const animation = this.animation;
    if (animation === null) return false;
    const share = Math.min(1, (this.now() - animation.start) / ANIMATION_MS);
    const eased = 1 - (1 - share) ** 3;
    const { from, to } = animation;
    // Spans change by equal ratios, which makes zooming look even.
    const [length, goal] = [from.end - from.begin, to.end - to.begin];
    const span = length * (goal / length) ** eased;
    const part = Math.abs(goal - length) < 1e-9 * length ? eased : (span - length) / (goal - length);
    this.begin = from.begin + (to.begin - from.begin) * part;
    this.end = this.begin + span;
    if (share >= 1) {
      ({ begin: this.begin, end: this.end } = to);
      this.animation = null;
    }
    return this.animation !== null;
  }

  /** Undoes the last movement. */
  undo(): boolean {
    const before = this.past.pop();
    if (before === undefined) return false;
    this.future.push({ ...this.target });
    this.lastMove = Number.NEGATIVE_INFINITY;
    this.glide(before);
    return true;
  }

  /** Redoes the movement that was undone last. */
  redo(): boolean {
    const after = this.future.pop();
    if (after === undefined) return false;
    this.past.push({ ...this.target });
    this.lastMove = Number.NEGATIVE_INFINITY;
    this.glide(after);
    return true;
  }
}
