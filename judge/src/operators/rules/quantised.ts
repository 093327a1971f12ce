/** Quantised weights (NUMERICS 16.10, 19.1). */
import type { Node, Rule, Shape } from "./node.ts";

interface BlockShape {
  readonly elements: bigint;
  readonly size: bigint;
}

const FORMATS: Readonly<Record<string, BlockShape>> = {
  q4_0: { elements: 32n, size: 18n },
  q4_1: { elements: 32n, size: 20n },
  q5_0: { elements: 32n, size: 22n },
  q5_1: { elements: 32n, size: 24n },
  q8_0: { elements: 32n, size: 34n },
  q4_k: { elements: 256n, size: 144n },
  q5_k: { elements: 256n, size: 176n },
  q6_k: { elements: 256n, size: 210n },
};

function dequantize(node: Node): readonly Shape[] {
  const raw = node.axes("raw", 1, Infinity);
  const block = FORMATS[node.word("format", Object.keys(FORMATS))];
  const row = raw.at(-1) ?? 0n;
  if (block === undefined || row % block.size !== 0n) {
    throw node.no(`has rows of ${row} bytes, which are no whole blocks`);
  }
  return [[...raw.slice(0, -1), (row / block.size) * block.elements]];
}

export const QUANTISED: Readonly<Record<string, Rule>> = {
  "tallystick.dequantize": dequantize,
};
