// Table of any length that builds only its visible rows. All rows have the same height and columns
// have fixed widths, so that nothing moves while it is scrolled.

import { el } from "../dom";

/** Height of a row in pixels, as in the stylesheet. */
const ROW = 22;
/** Rows above and below the visible ones. */
const MARGIN = 8;
/** Number of rows up to which browsers scroll exactly. */
const MAX_ROWS = Math.floor(4_000_000 / ROW);

export interface Column {
  title: string;
  /** Width in pixels. Columns without one share the rest. */
  width?: number;
}

export interface Rows {
  columns: Column[];
  /** Number of rows. */
  count: number;
  /** Cells of a row; null while they are unknown. */
  cells: (row: number) => HTMLTableCellElement[] | null;
  /** Called when unknown rows are visible. */
  missing?: () => void;
}

export class Table {
  readonly element: HTMLElement;
  private readonly body = el("tbody");
  private shown = "";

  constructor(private readonly rows: Rows) {
    const widths = rows.columns.map(({ width }) => {
      const column = el("col");
      if (width !== undefined) column.style.width = `${width}px`;
      return column;
    });
    const heads = rows.columns.map(({ title, width }) => el("th", { text: title, ...(width === undefined ? {} : { class: "number" }) }));
    const table = el("table", { class: "list virtual", attributes: { "aria-rowcount": String(rows.count + 1) } });
    table.append(el("colgroup", {}, ...widths), el("thead", {}, el("tr", {}, ...heads)), this.body);
    this.element = el("div", { class: "scrolls", attributes: { tabindex: "0" } }, table);
    this.element.addEventListener("scroll", () => this.draw());
    this.draw();
  }

  /** Draws rows that have become known. */
  redraw(): void {
    this.shown = "";
    this.draw();
  }

  private draw(): void {
    const count = Math.min(this.rows.count, MAX_ROWS);
    // The table has no height before it is in the page. 300 is its maximum.
    const height = this.element.clientHeight || 300;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MARGIN);
    const last = Math.min(count, first + Math.ceil(height / ROW) + 2 * MARGIN);
    const key = `${first}:${last}`;
    if (key === this.shown) return;
    this.shown = key;
    const lines: HTMLElement[] = [];
    let isWhole = true;
    for (let row = first; row < last; row++) {
      const cells = this.rows.cells(row);
      isWhole &&= cells !== null;
      const line = el("tr", { attributes: { "aria-rowindex": String(row + 2) } }, ...(cells ?? [el("td", { class: "muted", text: "…" })]));
      lines.push(line);
    }
    this.body.replaceChildren(space(first), ...lines, space(count - last));
    if (!isWhole) this.rows.missing?.();
  }
}

/** Space of rows that are not built. */
function space(rows: number): HTMLElement {
  const room = el("tr", { class: "space" });
  room.style.height = `${Math.max(0, rows) * ROW}px`;
  return room;
}
