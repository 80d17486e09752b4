// The panel at the bottom: its tabs, its height, and who fills it.

import type { App, Tab } from "./app";
import { byId } from "./dom";

const TABS: readonly Tab[] = ["detail", "selection", "events", "flame", "notes"];
const LEAST = 96;

/** Who fills a tab, when it is in sight. */
export interface Page {
  show(): void;
}

export class Panel {
  private readonly root = byId("panel");
  private readonly pages = new Map<Tab, Page>();

  constructor(private readonly app: App) {
    for (const tab of TABS) {
      byId(`tab-${tab}`).addEventListener("click", () => {
        this.unfold();
        app.setTab(tab);
      });
    }
    byId("panel-fold").addEventListener("click", () => this.toggle());
    app.on("tab", () => this.show());
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
    byId("panel-fold").textContent = this.folded ? "▴" : "▾";
    this.app.draw();
  }

  private unfold(): void {
    if (this.folded) this.toggle();
  }

  show(): void {
    for (const tab of TABS) {
      const chosen = tab === this.app.tab;
      byId(`tab-${tab}`).setAttribute("aria-selected", String(chosen));
      byId(`page-${tab}`).hidden = !chosen;
    }
    this.pages.get(this.app.tab)?.show();
  }

  private resizes(): void {
    const grip = byId("panel-grip");
    grip.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      grip.setPointerCapture(event.pointerId);
      const [from, start] = [event.clientY, this.root.clientHeight];
      const drag = (now: PointerEvent): void => {
        const height = Math.min(innerHeight * 0.75, Math.max(LEAST, start + from - now.clientY));
        this.root.style.height = `${height}px`;
        this.app.draw();
      };
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
