/** Whether a program is well formed: PROGRAM 1.2, 3.2, 3.4, 6.2 to 6.6. */
import { refuse } from "../errors.ts";
import { isStored } from "../numbers/bits.ts";
import { COMMIT, inferTypes, type OperatorTable } from "../operators/index.ts";
import { nameOf } from "./contract.ts";
import { sameType, type TensorType } from "../tensors.ts";
import type { Input, Source } from "./program.ts";
import { typeOf, type ProgramText, type Section, type TextNode } from "./text.ts";

/** NUMERICS 10.12. */
export const FOLD = "tallystick.fold";
const SCALAR: TensorType = { dtype: "f64", shape: [] };
const RNG: TensorType = { dtype: "i64", shape: [2] };

/** Refuses a text that is no program. Its contract's settings are looked at elsewhere. */
export function checkFormed(text: ProgramText, table: OperatorTable): void {
  for (const [name, input] of text.inputs) checkInput(name, input);
  for (const node of text.nodes) checkNode(text, node, table);
  checkCommit(text);
  checkStored(text);
  if (text.section !== null) new SectionCheck(text, text.section).check();
}

/** 1.2. */
function checkInput(name: string, { kind, type }: Input): void {
  const named = name.startsWith("batch.")
    ? "batch"
    : name.startsWith("scalar.")
      ? "scalar"
      : name === "rng"
        ? "rng"
        : "state";
  if (kind !== named) throw refuse(`the input ${name} is of kind ${kind}`);
  const due = kind === "scalar" ? SCALAR : kind === "rng" ? RNG : type;
  if (!sameType(type, due)) throw refuse(`the input ${name} has another type`);
}

/** 3.2. */
function checkNode(text: ProgramText, node: TextNode, table: OperatorTable): void {
  const operands = node.operands.map((source) => source && typeOf(text, source));
  const contracts = table.get(node.operator)?.contracts;
  if (contracts !== undefined && !contracts.has(nameOf(text.contract))) {
    throw refuse(`${nameOf(text.contract)} does not have ${node.operator}`);
  }
  const types = inferTypes(table, node.operator, node.attributes, operands);
  const isSame =
    types.length === node.outputs.length &&
    types.every((type, k) => sameType(type, node.outputs[k] ?? SCALAR));
  if (!isSame) throw refuse(`${node.operator} has outputs of other types`);
}

/** 3.4. Outputs are in bytewise order of names, and so are the next states. */
function checkCommit(text: ProgramText): void {
  const { inputs, nodes, outputs } = text;
  const next = outputs.filter(({ name }) => inputs.get(name)?.kind === "state");
  const slots = [...inputs.values()].filter(({ kind }) => kind === "state").length;
  const commits = nodes.filter(({ operator }) => operator === COMMIT).length;
  if (next.length === 0) {
    if (commits > 0) throw refuse("a commit node without a next state");
    return;
  }
  if (next.length !== slots) throw refuse("a slot without a next state");
  for (const { name, value } of next) {
    const slot = inputs.get(name);
    if (slot === undefined || !sameType(slot.type, typeOf(text, value))) {
      throw refuse(`the next state of ${name} has another type`);
    }
  }
  const last = nodes.at(-1);
  if (commits !== 1 || last?.operator !== COMMIT) throw refuse("no commit node at the end");
  const isSame =
    last.operands.length === next.length &&
    next.every(({ value }, k) => value === last.operands[k]);
  if (!isSame) throw refuse("a commit node of other values than the next states");
}

/** The contracts that have bf16 and f16 (NUMERICS 1.14). */
const WITH_STORED: ReadonlySet<string> = new Set(["ordered/1", "rounded/1"]);

/** 3.6. */
function checkStored({ inputs, outputs, contract }: ProgramText): void {
  for (const [name, { kind, type }] of inputs) {
    if (!isStored(type.dtype)) continue;
    if (kind !== "state") throw refuse(`the input ${name} is ${type.dtype}, and no slot`);
    const whose = nameOf(contract);
    if (!WITH_STORED.has(whose)) throw refuse(`${whose} does not have ${type.dtype}`);
    const next = outputs.find((output) => output.name === name)?.value;
    if (next !== undefined && !(next.from === "input" && next.name === name)) {
      throw refuse(`the next state of ${name} is not the slot itself`);
    }
  }
}

/** The rules of a text 2. */
class SectionCheck {
  readonly #carried: ReadonlySet<Source>;

  constructor(
    readonly text: ProgramText,
    readonly section: Section,
  ) {
    this.#carried = new Set(section.carries.map(({ value }) => value));
  }

  check(): void {
    const { nodes, outputs } = this.text;
    const size = this.section.nodes;
    if (size < 1 || size > nodes.length) throw refuse("a section of no node, or of too many");
    for (const { name, value } of this.section.carries) this.#checkCarry(name, value);
    for (const [index, node] of nodes.entries()) {
      if (index < size) {
        if (node.operator === FOLD || node.operator === COMMIT) {
          throw refuse(`${node.operator} in the section`);
        }
      } else if (node.operator === FOLD) this.#checkFold(node);
      else for (const source of node.operands) this.#checkTailOperand(source);
    }
    for (const { name, value } of outputs) {
      if (this.#isOfOneMicroBatch(value)) {
        throw refuse(`the output ${name} is of one micro-batch`);
      }
    }
  }

  #isOfSection(source: Source): boolean {
    return source.from === "node" && source.node < this.section.nodes;
  }

  /** Whether a value is of the section and not carried: then the tail has V of it. */
  #isOfOneMicroBatch(source: Source): boolean {
    return this.#isOfSection(source) && !this.#carried.has(source);
  }

  /** 6.4. */
  #checkCarry(name: string, value: Source): void {
    const slot = this.text.inputs.get(name);
    if (slot?.kind !== "state") throw refuse(`${name} is carried, and is no slot`);
    if (!this.#isOfSection(value)) throw refuse(`${name} carries a value of no micro-batch`);
    if (!sameType(slot.type, typeOf(this.text, value))) {
      throw refuse(`${name} carries a value of another type`);
    }
  }

  /** 6.5: a fold of the tail has one operand, an f32 output of a node of the section. */
  #checkFold({ operands, attributes }: TextNode): void {
    const [source] = operands;
    if (operands.length !== 1 || !source || !this.#isOfSection(source) || attributes.has("count")) {
      throw refuse("a fold of a tail that is not over the micro-batches");
    }
  }

  /** 6.5. */
  #checkTailOperand(source: Source | null): void {
    if (source === null) return;
    if (source.from === "input") {
      const kind = this.text.inputs.get(source.name)?.kind;
      if (kind === "batch" || kind === "rng") throw refuse(`the tail reads ${source.name}`);
    } else if (this.#isOfOneMicroBatch(source)) {
      throw refuse("the tail reads a value of one micro-batch");
    }
  }
}
