// Browser tests: Debian's Chromium, driven through playwright-core, against the debug binary.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/browser/**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    fileParallelism: false,
    // Tests of one file share a page, so a failure would mislead the next ones.
    bail: 1,
  },
});
