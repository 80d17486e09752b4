// The stretch of time on the screen, how it moves, and how movements are taken back.

export interface Span {
  begin: number;
  end: number;
}

/** Nothing is gained by less than so many nanoseconds on the screen. */
const LEAST = 40;
/** So long that the eye can follow, so short that the new place is there within a tenth of a
 * second. */
const ANIMATION = 70;
/** Movements with less than this between them are taken back together. */
const PAUSE = 500;
const MOST_UNDONE = 200;

export class View {
  begin = 0;
  end = 1;
  /** How far the trace reaches. */
  limits: Span = { begin: 0, end: 1 };
  private readonly past: Span[] = [];
  private readonly future: Span[] = [];
  private lastMove = Number.NEGATIVE_INFINITY;
  /** When it was moved last. */
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

  /** Where the view is, or will be when its movement ends. */
  get target(): Span {
    return this.animation?.to ?? { begin: this.begin, end: this.end };
  }

  /** The trace's reach; a view of the whole stays one. */
  limit(begin: number, end: number): void {
    const whole = this.begin <= this.limits.begin && this.end >= this.limits.end;
    this.limits = { begin, end: Math.max(end, begin + LEAST) };
    if (whole) this.jump(this.whole());
  }

  /** The whole trace, with a little air. */
  whole(): Span {
    const air = (this.limits.end - this.limits.begin) * 0.01;
    return { begin: this.limits.begin - air, end: this.limits.end + air };
  }

  private bounded({ begin, end }: Span): Span {
    const whole = this.limits.end - this.limits.begin;
    const span = Math.min(Math.max(end - begin, LEAST), whole * 1.2 + LEAST);
    const middle = (begin + end) / 2;
    const air = Math.max(Math.min(0.1 * whole, 0.5 * span), (span - whole) / 2);
    const [low, high] = [this.limits.begin - air, this.limits.end + air];
    const start = Math.min(Math.max(middle - span / 2, low), high - span);
    return { begin: start, end: start + span };
  }

  /** What a movement begins with can be gone back to; the steps of one gesture are one movement. */
  private remember(gesture: boolean): void {
    const now = this.now();
    this.moved = now;
    if (!gesture || now - this.lastMove > PAUSE) {
      this.past.push({ ...this.target });
      if (this.past.length > MOST_UNDONE) this.past.shift();
      this.future.length = 0;
    }
    this.lastMove = gesture ? now : Number.NEGATIVE_INFINITY;
  }

  /** Goes somewhere at once, as a dragging hand wants it. */
  set(span: Span): void {
    this.remember(true);
    this.jump(span);
  }

  private jump(span: Span): void {
    this.animation = null;
    ({ begin: this.begin, end: this.end } = this.bounded(span));
    this.changed();
  }

  /** Goes somewhere so that the eye can follow. */
  go(span: Span): void {
    this.remember(false);
    this.glide(span);
  }

  /** One step of a gesture. */
  private follow(span: Span, smooth: boolean): void {
    this.remember(true);
    if (smooth) this.glide(span);
    else this.jump(span);
  }

  private glide(span: Span): void {
    this.animation = { from: { begin: this.begin, end: this.end }, to: this.bounded(span), start: this.now() };
    this.changed();
  }

  /** Makes the span `factor` times as long; the moment `anchor` stays where it is on the screen. */
  zoom(factor: number, anchor: number, smooth = true): void {
    const { begin, end } = smooth ? this.target : this;
    const span = Math.max(LEAST, (end - begin) * factor);
    const share = (anchor - begin) / (end - begin);
    this.follow({ begin: anchor - share * span, end: anchor + (1 - share) * span }, smooth);
  }

  /** Moves by a share of the span. */
  pan(share: number, smooth = true): void {
    const { begin, end } = smooth ? this.target : this;
    const by = (end - begin) * share;
    this.follow({ begin: begin + by, end: end + by }, smooth);
  }

  /** Brings a stretch into sight, with air around it; the span stays if it is there already. */
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

  /** Fills the screen with a stretch. */
  fit(begin: number, end: number): void {
    const air = Math.max((end - begin) * 0.15, LEAST / 4);
    this.go({ begin: begin - air, end: end + air });
  }

  /** One step of a movement; true while it goes on. */
  step(): boolean {
    const animation = this.animation;
    if (animation === null) return false;
    const share = Math.min(1, (this.now() - animation.start) / ANIMATION);
    const eased = 1 - (1 - share) ** 3;
    const { from, to } = animation;
    // Lengths are passed through in equal ratios: so zooming looks even.
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

  /** Takes the last movement back. */
  undo(): boolean {
    const before = this.past.pop();
    if (before === undefined) return false;
    this.future.push({ ...this.target });
    this.lastMove = Number.NEGATIVE_INFINITY;
    this.glide(before);
    return true;
  }

  /** Makes the movement anew that was taken back. */
  redo(): boolean {
    const after = this.future.pop();
    if (after === undefined) return false;
    this.past.push({ ...this.target });
    this.lastMove = Number.NEGATIVE_INFINITY;
    this.glide(after);
    return true;
  }
}
