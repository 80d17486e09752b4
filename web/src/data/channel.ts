// Asks for lanes in a worker. A browser takes some time to begin one: what is asked for before that
// is fetched here.

import { type AbortRequest, Fetcher, type LanesRequest } from "./worker";

export class Channel extends EventTarget {
  private readonly here = new Fetcher((answer) => this.give(answer));
  private isBegun = false;

  constructor(private readonly worker: Worker) {
    super();
    worker.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
      if (data === "begun") this.isBegun = true;
      else this.give(data);
    });
  }

  postMessage(message: LanesRequest | AbortRequest): void {
    const isHere = message.kind === "abort" ? this.here.has(message.request) : !this.isBegun;
    if (isHere) void this.here.serve(message);
    else this.worker.postMessage(message);
  }

  private give(data: unknown): void {
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
}
