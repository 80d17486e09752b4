// Creates DOM elements. Text is always set as text: nothing from a trace is parsed as HTML.

type Child = Node | string | null | undefined | false;

interface Options {
  class?: string;
  text?: string;
  title?: string;
  data?: Record<string, string>;
  attributes?: Record<string, string>;
  click?: (event: MouseEvent) => void;
}

/** Creates an element with its class, text and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: Options = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (options.class !== undefined) element.className = options.class;
  if (options.text !== undefined) element.textContent = options.text;
  if (options.title !== undefined) element.title = options.title;
  for (const [name, value] of Object.entries(options.data ?? {})) element.dataset[name] = value;
  for (const [name, value] of Object.entries(options.attributes ?? {})) element.setAttribute(name, value);
  if (options.click !== undefined) element.addEventListener("click", options.click as EventListener);
  append(element, children);
  return element;
}

/** Appends children to an element. */
export function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replaces the contents of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Creates a button that looks like a link. */
export function link(text: string, title: string, click: () => void): HTMLButtonElement {
  return el("button", { class: "link", text, title, click, attributes: { type: "button" } });
}

/** Creates a button. */
export function button(text: string, title: string, click: () => void, className = "button"): HTMLButtonElement {
  return el("button", { class: className, text, title, click, attributes: { type: "button" } });
}

/** Element of the page's HTML by its ID. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element as T;
}

/** Sets an element's text if it differs, since each change costs a layout. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Cached size of an element in pixels. Asking for it in each frame would cost a layout. */
export class Size {
  private known = { width: 0, height: 0 };

  constructor(
    private readonly element: HTMLElement,
    changed: () => void,
  ) {
    new ResizeObserver(() => {
      this.known = { width: 0, height: 0 };
      changed();
    }).observe(element);
  }

  private get size(): { width: number; height: number } {
    if (this.known.width === 0) this.known = { width: Math.max(1, this.element.clientWidth), height: Math.max(1, this.element.clientHeight) };
    return this.known;
  }

  get width(): number {
    return this.size.width;
  }

  get height(): number {
    return this.size.height;
  }
}

/** Cuts a text to at most `most` characters with an ellipsis, and isolates its direction. */
export function shorten(text: string, most: number): string {
  return isolate(text.length <= most ? text : `${text.slice(0, most - 1)}…`);
}

/** Right-to-left letters and direction marks. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc]|[\ud802\ud803\ud83a\ud83b]/;

/** Isolates the direction of a text, so that a number after it is not reordered. */
export function isolate(text: string): string {
  if (!RIGHT_TO_LEFT.test(text)) return text;
  let [inner, open] = ["", 0];
  for (const letter of text) {
    const ends = letter === "\u2069";
    // It must not end the isolation around it.
    if (ends && open === 0) continue;
    open += ends ? -1 : letter >= "\u2066" && letter <= "\u2068" ? 1 : 0;
    inner += letter;
  }
  return `\u2068${inner}${"\u2069".repeat(open)}\u2069`;
}

/** Resizes a canvas to device pixels. Returns whether its size changed. */
export function fitCanvas(canvas: HTMLCanvasElement, width: number, height: number): boolean {
  const ratio = devicePixelRatio;
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width === wide && canvas.height === high) return false;
  canvas.width = wide;
  canvas.height = high;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return true;
}

/** Context of a canvas in CSS pixels. */
export function context(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const drawing = canvas.getContext("2d");
  if (drawing === null) throw new Error("this browser can't draw on a canvas");
  drawing.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  return drawing;
}
