// Fetches lanes in a worker. Until the browser has started it, requests are served on the page's
// thread.

import { type AbortRequest, Fetcher, type LanesRequest } from "./worker";

export class Channel extends EventTarget {
  private readonly local = new Fetcher((answer) => this.deliver(answer));
  private isStarted = false;

  constructor(private readonly worker: Worker) {
    super();
    worker.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
      if (data === "begun") this.isStarted = true;
      else this.deliver(data);
    });
  }

  postMessage(message: LanesRequest | AbortRequest): void {
    const isLocal = message.kind === "abort" ? this.local.has(message.request) : !this.isStarted;
    if (isLocal) void this.local.serve(message);
    else this.worker.postMessage(message);
  }

  private deliver(data: unknown): void {
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
}
