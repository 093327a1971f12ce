import { defineConfig } from "vitest/config";

export default defineConfig({
  // By default vitest leaves one processor free: of two, half.
  test: { include: ["test/**/*.test.ts"], testTimeout: 60_000, maxWorkers: "100%" },
});
