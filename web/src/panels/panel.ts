// Panel at the bottom: its tabs and its height.

import { TABS, type App, type Tab } from "../app";
import { byId } from "../dom";

const MIN_HEIGHT = 96;
/** Change of the height by a key, in pixels. */
const STEP = 48;

/** Contents of a tab. `show` is called when the tab becomes visible. */
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
    this.listenToGrip();
  }

  add(tab: Tab, page: Page): void {
    this.pages.set(tab, page);
  }

  get isHidden(): boolean {
    return this.root.classList.contains("folded");
  }

  toggle(): void {
    this.root.classList.toggle("folded");
    const fold = byId("panel-fold");
    fold.textContent = this.isHidden ? "▴" : "▾";
    fold.setAttribute("aria-expanded", String(!this.isHidden));
    fold.title = `${this.isHidden ? "Show" : "Hide"} the panel (B)`;
    // The selection may have changed while it was hidden.
    if (!this.isHidden) this.pages.get(this.app.tab)?.show();
    this.app.draw();
  }

  private unfold(): void {
    if (this.isHidden) this.toggle();
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

  /** Handles arrow keys, which go from tab to tab. */
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

  /** Makes the panel taller or shorter. */
  grow(by: 1 | -1): void {
    this.unfold();
    this.resize(this.root.clientHeight + by * STEP);
    this.show();
  }

  private resize(height: number): void {
    const most = innerHeight * 0.75;
    const bound = Math.round(Math.min(most, Math.max(MIN_HEIGHT, height)));
    this.root.style.height = `${bound}px`;
    for (const [name, value] of [["now", bound], ["min", MIN_HEIGHT], ["max", Math.round(most)]] as const) {
      this.grip.setAttribute(`aria-value${name}`, String(value));
    }
    this.app.draw();
  }

  private listenToGrip(): void {
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
