// Proxy of the development server: leads requests of the page to a running viewer, with its token.

import type { ProxyOptions } from "vite";

/** Options of Vite's proxy for the viewer at an address that `tompion view` printed. */
export async function viewerProxy(address: string): Promise<Record<string, ProxyOptions>> {
  const { origin } = new URL(address);
  // The viewer answers with the folder of its page and a cookie for the token.
  const response = await fetch(address, { redirect: "manual" });
  const folder = response.headers.get("location");
  const cookie = response.headers.get("set-cookie")?.split(";")[0];
  if (folder === null || cookie === undefined) {
    throw new Error(`expected the address that tompion view printed, with its token; ${origin} answered ${response.status}`);
  }
  // It refuses requests of other origins.
  const headers = { cookie, origin };
  return { "/api": { target: origin, changeOrigin: true, headers, rewrite: (path) => `${folder.replace(/\/$/, "")}${path}` } };
}
