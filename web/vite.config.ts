// Configuration of Vite. The built page is embedded in the command and committed, so its files have
// fixed names and equal bytes everywhere.
import { defineConfig, type ViteUserConfig } from "vitest/config";
import { viewerProxy } from "./dev-proxy";

/** Address of a running viewer, for the development server. */
const viewer = process.env["TOMPION_VIEWER"];

export default defineConfig(async (): Promise<ViteUserConfig> => ({
  base: "./",
  build: {
    outDir: process.env["TOMPION_PAGE"] ?? "../crates/viewer/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: { entryFileNames: "assets/app.js", assetFileNames: "assets/app[extname]" },
    },
  },
  worker: {
    format: "es",
    rollupOptions: { output: { entryFileNames: "assets/worker.js" } },
  },
  server: viewer === undefined ? {} : { proxy: await viewerProxy(viewer) },
  // The limit is generous, since the machine may be busy.
  test: { include: ["test/unit/**/*.test.ts"], testTimeout: 60_000 },
}));
