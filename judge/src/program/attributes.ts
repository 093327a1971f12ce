/** Attributes as a program writes them (PROGRAM 2.5, 2.6). */
import { toUtf8 } from "../bytes.ts";
import { writeHexFloat } from "../hexfloat.ts";
import type { Attribute, Attributes } from "../operators/index.ts";

function valueText(value: Attribute): string {
  if (typeof value === "number") return writeHexFloat(value);
  if (typeof value === "string") return `"${value}"`;
  if (typeof value === "bigint" || typeof value === "boolean") return String(value);
  return `[${value.join(",")}]`;
}

/** The attribute bytes of a node (2.6); the attributes are in the order of the text. */
export function attributeBytes(attributes: Attributes): Uint8Array {
  return toUtf8([...attributes].map(([name, value]) => `${name}=${valueText(value)}`).join(", "));
}
