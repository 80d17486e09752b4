// A table of any length of which only the rows in sight are there. All rows are equally high;
// widths of columns are given, so that nothing moves while it is scrolled.

import { el } from "../dom";

/** Height of a row in pixels, as the stylesheet has it. */
const ROW = 22;
/** Rows beyond those in sight, above and below. */
const MARGIN = 8;
/** Browsers lose count of pixels beyond this. */
const MOST_ROWS = Math.floor(4_000_000 / ROW);

export interface Column {
  title: string;
  /** In pixels; without one, the columns that have none share what is left. */
  width?: number;
}

export interface Rows {
  columns: Column[];
  /** How many rows there are. */
  count: number;
  /** The cells of a row; null while it isn't known. */
  cells: (row: number) => HTMLTableCellElement[] | null;
  /** Rows that aren't known are in sight. */
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

  /** Shows what is known by now. */
  redraw(): void {
    this.shown = "";
    this.draw();
  }

  private draw(): void {
    const count = Math.min(this.rows.count, MOST_ROWS);
    // Before it stands in the page it has no height; then it is as high as it can be.
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

/** Room for rows that are not there. */
function space(rows: number): HTMLElement {
  const room = el("tr", { class: "space" });
  room.style.height = `${Math.max(0, rows) * ROW}px`;
  return room;
}
