/** Writes an expansion by the rules of PROGRAM 2, as a text 1 (vectors/program/README.md). */
import { attributeBytes } from "../../src/program/attributes.ts";
import type { Expansion } from "../../src/program/expansion.ts";
import type { Source } from "../../src/program/program.ts";
import type { ProgramText } from "../../src/program/text.ts";
import type { TensorType } from "../../src/tensors.ts";

export const typeText = ({ dtype, shape }: TensorType): string => `${dtype}[${shape.join(",")}]`;

export function written(text: ProgramText, expansion: Expansion, V: number): string {
  const value = (source: Source | null): string => {
    if (source === null) return "none";
    if (source.from === "input") return `@${source.name}`;
    const several = expansion.origin(source.node).outputs.length > 1;
    return `%${source.node}${several ? `.${source.output}` : ""}`;
  };
  const names = [...text.inputs].flatMap(([name, { kind }]) =>
    kind === "batch" && text.version === 2
      ? Array.from({ length: V }, (_, v) => `${name}#${v}`)
      : [name],
  );
  const inputs = names.sort().map((name) => {
    const { kind, type } = expansion.input(name);
    return `input ${kind} ${name} ${typeText(type)}`;
  });
  const nodes = Array.from({ length: expansion.nodeCount }, (_, k) => {
    const { operator, attributes, operands } = expansion.node(k);
    const bytes = new TextDecoder().decode(attributeBytes(attributes));
    const types = expansion.origin(k).outputs.map(typeText).join(", ") || "none";
    const braces = attributes.size > 0 ? `{${bytes}}` : "";
    return `%${k} = ${operator}(${operands.map(value).join(", ")})${braces} : ${types}`;
  });
  const outputs = text.outputs.map(
    ({ name, value: source }) => `output ${name} ${value(expansion.value(source))}`,
  );
  const lines = ["tallystick program 1", `contract ${text.contract}`, ...inputs, ...nodes];
  return [...lines, ...outputs, "end", ""].join("\n");
}
