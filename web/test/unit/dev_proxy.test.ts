// Proxy of the development server, in front of a server that checks requests as the viewer does.

import { createServer as createHttpServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { createServer, type ViteDevServer } from "vite";
import { viewerProxy } from "../../dev-proxy";

interface Seen {
  url: string;
  method: string;
  headers: IncomingHttpHeaders;
}

let [viewer, vite]: [Server | null, ViteDevServer | null] = [null, null];

afterEach(async () => {
  await vite?.close();
  viewer?.close();
  [viewer, vite] = [null, null];
});

/** Server that redirects requests with the token to its folder. Returns its address. */
async function startViewer(seen: Seen[]): Promise<string> {
  const server = createHttpServer(({ url = "", method = "", headers }, response) => {
    if (url === "/?token=abc") response.writeHead(303, { Location: "/folder/", "Set-Cookie": "tompion_view_1=abc; HttpOnly; SameSite=Strict; Path=/folder/" });
    else if (url.startsWith("/folder/api/")) seen.push({ url, method, headers });
    else response.writeHead(403);
    response.end("{}");
  });
  viewer = server;
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("the development server", () => {
  it("leads requests to the viewer's folder, with its token and origin", async () => {
    const seen: Seen[] = [];
    const origin = await startViewer(seen);
    const proxy = await viewerProxy(`${origin}/?token=abc`);
    vite = await createServer({ configFile: false, logLevel: "silent", server: { port: 0, host: "127.0.0.1", proxy, hmr: false, ws: false } });
    await vite.listen();
    const { port } = vite.httpServer!.address() as AddressInfo;
    const here = `http://127.0.0.1:${port}`;
    expect((await fetch(`${here}/api/trace?a=1`)).status).toBe(200);
    expect((await fetch(`${here}/api/notes`, { method: "POST", body: "{}", headers: { Origin: here } })).status).toBe(200);
    expect(seen.map(({ url, method }) => [method, url])).toEqual([["GET", "/folder/api/trace?a=1"], ["POST", "/folder/api/notes"]]);
    for (const { headers } of seen) expect([headers.cookie, headers.origin, headers.host]).toEqual(["tompion_view_1=abc", origin, new URL(origin).host]);
  });

  it("refuses an address without token", async () => {
    const origin = await startViewer([]);
    await expect(viewerProxy(`${origin}/`)).rejects.toThrow("with its token");
  });
});
