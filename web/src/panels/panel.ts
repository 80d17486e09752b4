// The panel at the bottom: its tabs, its height, and who fills it.

import { TABS, type App, type Tab } from "../app";
import { byId } from "../dom";

const LEAST = 96;
/** By so many pixels do keys make it higher or lower. */
const STEP = 48;

/** Who fills a tab, when it is in sight. */
export interface Page {
  show(): void;
}

export class Panel {
  private readonly root = byId("panel");
  private readonly grip = byId("panel-grip");
  private readonly pages = new Map<Tab, Page>();

  constructor(private readonly app: App) {
    for (const tab of TABS) {
      byId(`tab-${tab}`).addEventListener("click", () => app.openTab(tab));
      byId(`tab-${tab}`).addEventListener("keydown", (event) => this.key(event, tab));
    }
    byId("panel-fold").addEventListener("click", () => this.toggle());
    app.on("tab", () => this.show());
    app.on("unfold", () => this.unfold());
    this.resizes();
  }

  add(tab: Tab, page: Page): void {
    this.pages.set(tab, page);
  }

  get folded(): boolean {
    return this.root.classList.contains("folded");
  }

  toggle(): void {
    this.root.classList.toggle("folded");
    const fold = byId("panel-fold");
    fold.textContent = this.folded ? "▴" : "▾";
    fold.setAttribute("aria-expanded", String(!this.folded));
    fold.title = `${this.folded ? "Unfold" : "Fold"} the panel (B)`;
    // What was chosen while it was folded is shown now.
    if (!this.folded) this.pages.get(this.app.tab)?.show();
    this.app.draw();
  }

  private unfold(): void {
    if (this.folded) this.toggle();
  }

  show(): void {
    for (const tab of TABS) {
      const chosen = tab === this.app.tab;
      byId(`tab-${tab}`).setAttribute("aria-selected", String(chosen));
      byId(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
      byId(`page-${tab}`).hidden = !chosen;
    }
    this.pages.get(this.app.tab)?.show();
  }

  /** Arrows go from tab to tab. */
  private key(event: KeyboardEvent, tab: Tab): void {
    const at = TABS.indexOf(tab);
    const places: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1 + TABS.length, Home: 0, End: TABS.length - 1 };
    const place = places[event.key];
    const other = place === undefined ? undefined : TABS[place % TABS.length];
    if (other === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.app.openTab(other);
    byId(`tab-${other}`).focus();
  }

  /** Makes it higher, or lower. */
  grow(by: 1 | -1): void {
    this.unfold();
    this.resize(this.root.clientHeight + by * STEP);
    this.show();
  }

  private resize(height: number): void {
    const most = innerHeight * 0.75;
    const bound = Math.round(Math.min(most, Math.max(LEAST, height)));
    this.root.style.height = `${bound}px`;
    for (const [name, value] of [["now", bound], ["min", LEAST], ["max", Math.round(most)]] as const) {
      this.grip.setAttribute(`aria-value${name}`, String(value));
    }
    this.app.draw();
  }

  private resizes(): void {
    const { grip } = this;
    grip.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
      event.preventDefault();
      event.stopPropagation();
      this.grow(event.key === "ArrowUp" ? 1 : -1);
    });
    grip.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      grip.setPointerCapture(event.pointerId);
      const [from, start] = [event.clientY, this.root.clientHeight];
      const drag = (now: PointerEvent): void => this.resize(start + from - now.clientY);
      const drop = (): void => {
        grip.removeEventListener("pointermove", drag);
        grip.removeEventListener("pointerup", drop);
        this.show();
      };
      grip.addEventListener("pointermove", drag);
      grip.addEventListener("pointerup", drop);
    });
  }
}
