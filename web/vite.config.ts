// The page is embedded in the command and committed, so its files have fixed names and equal bytes
// everywhere.
import { defineConfig } from "vitest/config";

export default defineConfig({
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
  // On a machine that others use, too, nothing is quick.
  test: { include: ["test/unit/**/*.test.ts"], testTimeout: 60_000 },
});
