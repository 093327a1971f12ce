import { defineConfig } from "vitest/config";

export default defineConfig({
  // By default one processor is left for a person who waits: of two, half.
  test: { include: ["test/**/*.test.ts"], testTimeout: 60_000, maxWorkers: "100%" },
});
