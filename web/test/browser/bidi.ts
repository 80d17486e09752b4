// Client of WebDriver BiDi for Firefox: JSON over a WebSocket, for which Node 20 has no client.

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEADLINE } from "./server";

const [TEXT, CLOSE, PING, PONG] = [1, 8, 9, 10];

/** Client of a WebSocket. */
class Messages {
  private bytes = Buffer.alloc(0);
  private message = Buffer.alloc(0);

  constructor(
    private readonly socket: Socket,
    private readonly take: (text: string) => void,
  ) {
    socket.on("data", (part: Buffer) => {
      this.bytes = Buffer.concat([this.bytes, part]);
      while (this.frame());
    });
  }

  /** Takes a frame if a complete one has arrived. */
  private frame(): boolean {
    const { bytes } = this;
    if (bytes.length < 2) return false;
    const [first, short] = [bytes[0] ?? 0, (bytes[1] ?? 0) & 0x7f];
    const head = short === 126 ? 4 : short === 127 ? 10 : 2;
    if (bytes.length < head) return false;
    const size = short === 126 ? bytes.readUInt16BE(2) : short === 127 ? Number(bytes.readBigUInt64BE(2)) : short;
    if (bytes.length < head + size) return false;
    const content = bytes.subarray(head, head + size);
    this.bytes = bytes.subarray(head + size);
    const kind = first & 0x0f;
    if (kind === PING) this.send(PONG, content);
    if (kind >= CLOSE) return true;
    this.message = Buffer.concat([this.message, content]);
    if ((first & 0x80) !== 0) {
      this.take(this.message.toString());
      this.message = Buffer.alloc(0);
    }
    return true;
  }

  send(kind: number, content: Buffer): void {
    const mask = randomBytes(4);
    const size = content.length;
    // Sizes must have their shortest form.
    const head = Buffer.alloc(size < 126 ? 2 : size < 65536 ? 4 : 10);
    head[0] = 0x80 | kind;
    head[1] = 0x80 | (size < 126 ? size : size < 65536 ? 126 : 127);
    if (head.length === 4) head.writeUInt16BE(size, 2);
    if (head.length === 10) head.writeBigUInt64BE(BigInt(size), 2);
    this.socket.write(Buffer.concat([head, mask, content.map((byte, at) => byte ^ (mask[at % 4] ?? 0))]));
  }
}

function connect(url: string, take: (text: string) => void): Promise<Messages> {
  const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": randomBytes(16).toString("base64") };
  return new Promise((found, failed) => {
    const asked = request(url.replace("ws:", "http:"), { headers });
    asked.once("upgrade", (_answer, socket) => found(new Messages(socket, take)));
    asked.once("response", (answer) => failed(new Error(`Firefox refuses: ${answer.statusCode}`)));
    asked.once("error", failed);
    asked.end();
  });
}

interface Answer {
  id?: number;
  result?: unknown;
  error?: string;
  message?: string;
}

/** Headless Firefox with one page. */
export class Firefox {
  private readonly waiting = new Map<number, { done: (result: unknown) => void; failed: (error: Error) => void }>();
  private next = 1;
  private messages: Messages | null = null;
  private context = "";

  private constructor(
    private readonly process: ChildProcess,
    private readonly profile: string,
  ) {}

  static async launch(binary: string): Promise<Firefox> {
    const profile = mkdtempSync(join(tmpdir(), "tompion-firefox-"));
    const words = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"];
    const firefox = new Firefox(spawn(binary, words, { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, HOME: profile } }), profile);
    try {
      const url = await firefox.address();
      firefox.messages = await connect(`${url}/session`, (text) => firefox.take(JSON.parse(text) as Answer));
      await firefox.ask("session.new", { capabilities: {} });
      const { contexts } = (await firefox.ask("browsingContext.getTree", {})) as { contexts: { context: string }[] };
      firefox.context = contexts[0]?.context ?? "";
      await firefox.ask("browsingContext.setViewport", { context: firefox.context, viewport: { width: 1280, height: 720 } });
      return firefox;
    } catch (error) {
      firefox.stop();
      throw error;
    }
  }

  private address(): Promise<string> {
    return new Promise((found, failed) => {
      let text = "";
      const timer = setTimeout(() => failed(new Error(`Firefox doesn't listen: ${text}`)), DEADLINE);
      this.process.once("error", failed);
      this.process.once("exit", (code) => failed(new Error(`Firefox ended with ${code}: ${text}`)));
      this.process.stderr?.on("data", (part: Buffer) => {
        text += part.toString();
        const line = /WebDriver BiDi listening on (ws:\S+)/.exec(text)?.[1];
        if (line === undefined) return;
        clearTimeout(timer);
        found(line);
      });
    });
  }

  private take(answer: Answer): void {
    const waiting = this.waiting.get(answer.id ?? -1);
    if (waiting === undefined) return;
    this.waiting.delete(answer.id ?? -1);
    if (answer.error === undefined) waiting.done(answer.result);
    else waiting.failed(new Error(`${answer.error}: ${answer.message}`));
  }

  private ask(method: string, params: object): Promise<unknown> {
    const id = this.next++;
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      this.messages?.send(TEXT, Buffer.from(JSON.stringify({ id, method, params })));
    });
  }

  async open(url: string): Promise<void> {
    await this.ask("browsingContext.navigate", { context: this.context, url, wait: "complete" });
  }

  /** Evaluates an expression in the page: a text, a number or a boolean. */
  async evaluate(expression: string): Promise<unknown> {
    const asked = { expression, target: { context: this.context }, awaitPromise: true };
    const answer = (await this.ask("script.evaluate", asked)) as { type: string; result?: { value?: unknown }; exceptionDetails?: { text: string } };
    if (answer.type !== "success") throw new Error(answer.exceptionDetails?.text ?? "the page failed");
    return answer.result?.value;
  }

  /** Waits until an expression is true. */
  async until(expression: string): Promise<void> {
    const end = Date.now() + DEADLINE;
    while ((await this.evaluate(`Boolean(${expression})`)) !== true) {
      if (Date.now() > end) throw new Error(`not within a minute: ${expression}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** Takes a screenshot as PNG. */
  async picture(): Promise<Buffer> {
    const { data } = (await this.ask("browsingContext.captureScreenshot", { context: this.context })) as { data: string };
    return Buffer.from(data, "base64");
  }

  stop(): void {
    this.process.once("exit", () => rmSync(this.profile, { recursive: true, force: true }));
    this.process.kill("SIGTERM");
  }
}
