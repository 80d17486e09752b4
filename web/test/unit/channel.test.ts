// Requests before and after the worker has started.

import { afterEach, describe, expect, it, vi } from "vitest";
import { Channel } from "../../src/data/channel";
import { pack } from "../mock/pack.mjs";

class Made extends EventTarget {
  posted: unknown[] = [];
  postMessage(message: unknown): void {
    this.posted.push(message);
  }
  say(data: unknown): void {
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
}

describe("the channel to the worker", () => {
  afterEach(() => vi.unstubAllGlobals());

  const make = () => {
    const worker = new Made();
    const channel = new Channel(worker as unknown as Worker);
    const answers: { request: number; aborted?: boolean }[] = [];
    channel.addEventListener("message", (event) => answers.push((event as MessageEvent<{ request: number }>).data));
    return { worker, channel, answers };
  };

  it("fetches until the worker has started, and then leaves everything to it", async () => {
    const fetched: string[] = [];
    vi.stubGlobal("fetch", (url: string) => {
      fetched.push(url);
      return Promise.resolve(new Response(pack({ from: 0, to: 9, known: 9, lanes: [], labels: [] })));
    });
    const { worker, channel, answers } = make();
    channel.postMessage({ kind: "lanes", request: 1, url: "one" });
    await vi.waitFor(() => expect(answers.map(({ request }) => request)).toEqual([1]));
    worker.say("begun");
    channel.postMessage({ kind: "lanes", request: 2, url: "two" });
    expect(fetched).toEqual(["one"]);
    expect(worker.posted).toEqual([{ kind: "lanes", request: 2, url: "two" }]);
    worker.say({ request: 2 });
    expect(answers.map(({ request }) => request)).toEqual([1, 2]);
  });

  it("aborts its own requests, even if the worker has started meanwhile", async () => {
    vi.stubGlobal("fetch", (_: string, { signal }: { signal: AbortSignal }) => new Promise((_, failed) => signal.addEventListener("abort", () => failed(new Error("aborted")))));
    const { worker, channel, answers } = make();
    channel.postMessage({ kind: "lanes", request: 1, url: "one" });
    worker.say("begun");
    channel.postMessage({ kind: "abort", request: 1 });
    await vi.waitFor(() => expect(answers).toEqual([expect.objectContaining({ request: 1, aborted: true })]));
  });
});
