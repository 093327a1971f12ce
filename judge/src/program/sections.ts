/** The sections of a step's rounding log (COMMITMENTS 10.1). */
import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import type { LogForm, LogSection } from "../logs.ts";
import type { Operator, OperatorTable } from "../operators/index.ts";
import { elementsOf } from "../tensors.ts";
import type { Expansion } from "./expansion.ts";

/** Classes whose outputs no published log covers (NUMERICS 14.9). */
const UNCOVERED = ["move", "fold"];

/** Whether a log covers the f32 outputs of an operator (NUMERICS 13.1, 14.9). */
function covers(form: LogForm, operator: Operator): boolean {
  return form === "bounded" ? operator.rounded !== undefined : !UNCOVERED.includes(operator.class);
}

/** The sections in the order of nodes and outputs; none where the contract has no logs. */
export function sectionsOf(
  expansion: Expansion,
  form: LogForm | null,
  table: OperatorTable,
): LogSection[] {
  const sections: LogSection[] = [];
  if (form === null) return sections;
  for (let node = 0; node < expansion.nodeCount; node++) {
    const { operator: name, outputs } = expansion.origin(node);
    const operator = table.get(name);
    if (operator === undefined || !covers(form, operator)) continue;
    for (const [output, type] of outputs.entries()) {
      if (type.dtype !== "f32") continue;
      if (sections.length >= LIMITS.logSections) throw refuse("a log of too many sections");
      sections.push({ node, output, elements: elementsOf(type), form });
    }
  }
  return sections;
}
