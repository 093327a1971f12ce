/** Quantities of the operators of one element of each operand (OPENING 7.1.1). */
import { bitsOf, type Bits, type Dtype } from "../numbers/bits.ts";
import { holds } from "./attributes.ts";
import { Operands, RefusedByClause, type Call, type Reading } from "./call.ts";
import { Evaluation } from "./graph.ts";
import * as place from "./positions.ts";
import { isSet } from "./primitives.ts";
import { refusing, type Local } from "./quantity.ts";
import type { Form } from "./table.ts";

/** The first form of the operands' dtypes whose condition holds; undefined where none is. */
export function formOf(call: Call): Form | undefined {
  const { names } = new Operands(call);
  return call.operator.forms?.find((form) => {
    const fits = call.operands.every((type, k) => {
      const dtype = form.dtypes[k];
      return type === null || dtype === undefined || type.dtype === dtype;
    });
    return fits && (form.when === undefined || holds(form.when, call.attributes, names));
  });
}

/** The quantity `"out"` of an element: every operand that is there is read, in order. */
export function ofForm(call: Call, form: Form, output: number, element: bigint): Local {
  const type = call.outputs[output];
  const root = form.outputs[output];
  if (type === undefined || root === undefined) throw new Error(`no output ${output}`);
  const { dtype } = type;
  return {
    kind: "local",
    dtype,
    name: "out",
    needs: [],
    value: () => refusing(formula(call, form, output, element, root, dtype)),
  };
}

function* formula(
  call: Call,
  form: Form,
  output: number,
  element: bigint,
  root: number,
  dtype: Dtype,
): Reading<Bits> {
  const { operands, elements } = yield* elementsOf(call, output, element);
  const part = (): never => {
    throw new Error("a form has no parts");
  };
  const { nodes } = form;
  const scene = { call, operands, output, nodes, element, terms: 0n, part, elements };
  const evaluation = new Evaluation(scene);
  if (form.refused !== undefined && isSet(yield* evaluation.single(form.refused))) {
    throw new RefusedByClause(form.why ?? "refused");
  }
  return bitsOf(dtype, yield* evaluation.single(root));
}

/** The elements of all operands that are there, each read by itself. */
export function* elementsOf(
  call: Call,
  output: number,
  element: bigint,
): Reading<{ operands: Operands; elements: Map<string, Bits> }> {
  const operands = new Operands(call);
  const shape = place.shapeOf(call.outputs[output]?.shape ?? []);
  const elements = new Map<string, Bits>();
  for (const [operand, type] of call.operands.entries()) {
    if (type === null) continue;
    const position = place.broadcast(element, shape, place.shapeOf(type.shape));
    const [bits = 0n] = yield { operand, positions: [position] };
    elements.set(call.operator.operands[operand] ?? "", bits);
  }
  return { operands, elements };
}
