/** Bundles tools over sources in which changes stand as switches. */
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

import { build } from "esbuild";

/**
 * Writes a bundle to `outfile`; a file that `texts` has by its path is taken from there. `options`
 * are those of esbuild, among them the entry.
 */
export async function bundled(outfile, texts, options) {
  await build({
    bundle: true,
    platform: "node",
    format: "esm",
    outfile,
    ...options,
    plugins: [
      {
        name: "switches",
        setup: (of) =>
          of.onLoad({ filter: /\.ts$/ }, ({ path }) => {
            const text = texts.get(path) ?? readFileSync(path, "utf8");
            // Tests read vectors/ by their own place, which a bundle has lost.
            const place = JSON.stringify(pathToFileURL(path).href);
            return { contents: text.replaceAll("import.meta.url", place), loader: "ts" };
          }),
      },
    ],
  });
}
