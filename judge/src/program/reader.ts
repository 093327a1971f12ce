/**
 * Reads a program's canonical text (PROGRAM 2). Each token has one written form, so the text is the
 * one that 3.1 writes again. Operands are resolved as they are read (3.3).
 */
import { fromUtf8 } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { readHexFloat } from "../hexfloat.ts";
import { LIMITS } from "../limits.ts";
import { checkType, type Attribute, type Attributes } from "../operators/index.ts";
import { dtypeOf, type TensorType } from "../tensors.ts";
import type { Input } from "./program.ts";
import { Scanner } from "./scanner.ts";
import type { Named, ProgramText, TextNode } from "./text.ts";
import { Values, type Value } from "./values.ts";

/** Patterns of 2.1 and 2.3, each one character longer than the limit of 11.1 at most. */
const NAME = /[A-Za-z0-9_.:/-]{1,1025}/y;
const OPERATOR = /[A-Za-z0-9_.]{1,1025}/y;
const ATTRIBUTE = /[A-Za-z0-9_]{1,1025}/y;
const CONTRACT = /[A-Za-z0-9_./;=-]{1,1025}/y;
const DTYPE = /f32|f64|i64|i32|u8|bool|bf16|f16/y;
const FLOAT = /-?inf|nan|-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}/y;
const STRING = /"[A-Za-z0-9_.:/-]{0,1024}"/y;
const KINDS = ["batch", "scalar", "rng", "state"] as const;

interface Carry {
  readonly name: string;
  readonly value: Value;
}

class TextReader {
  readonly #scan: Scanner;
  readonly #values = new Values();

  constructor(text: string) {
    this.#scan = new Scanner(text);
  }

  /** The lines in the order of 2.1. */
  read(): ProgramText {
    const scan = this.#scan;
    scan.expect("tallystick program ");
    const version = scan.skips("2") ? 2 : 1;
    if (version === 1) scan.expect("1");
    scan.expect("\ncontract ");
    const contract = scan.match(CONTRACT, "a contract");
    scan.expect("\n");
    const inputs = this.#inputs();
    const micro = version === 2 ? this.#micro() : null;
    const carries = version === 2 ? this.#carries() : [];
    const nodes: TextNode[] = [];
    while (scan.skips("%")) {
      if (nodes.length >= LIMITS.nodes) throw refuse("a program of too many nodes");
      nodes.push(this.#node(nodes.length));
    }
    const resolved = carries.map(({ name, value }) => ({
      name,
      value: this.#values.source(value),
    }));
    const section = micro === null ? null : { nodes: micro, carries: resolved };
    const outputs = this.#outputs();
    scan.expect("end\n");
    if (!scan.isAtEnd) throw refuse("text behind the end of the program");
    return { version, contract, inputs, section, nodes, outputs };
  }

  #name(what: string, pattern: RegExp): string {
    const name = this.#scan.match(pattern, what);
    if (name.length > LIMITS.nameBytes) throw refuse(`${what} is too long`);
    return name;
  }

  /** A list of 1.2, 1.4, 2.5 or 6.4 has each name once, in bytewise order. */
  #nameAfter(before: string, pattern = NAME): string {
    const name = this.#name("a name", pattern);
    if (name <= before) throw refuse(`${name} is out of order`);
    return name;
  }

  #inputs(): Map<string, Input> {
    const scan = this.#scan;
    const inputs = new Map<string, Input>();
    let name = "";
    while (scan.skips("input ")) {
      if (inputs.size >= LIMITS.slots) throw refuse("a program of too many inputs");
      const kind = KINDS.find((word) => scan.skips(`${word} `));
      if (kind === undefined) throw refuse("an input of no kind");
      name = this.#nameAfter(name);
      scan.expect(" ");
      inputs.set(name, { kind, type: this.#type() });
      this.#values.addInput(name);
      scan.expect("\n");
    }
    return inputs;
  }

  #type(): TensorType {
    const scan = this.#scan;
    const dtype = dtypeOf(scan.match(DTYPE, "a dtype"));
    scan.expect("[");
    if (scan.skips("]")) return checkType(dtype, []);
    const shape = scan.list(",", LIMITS.tensorRank, "axes", () => scan.integer());
    scan.expect("]");
    return checkType(dtype, shape);
  }

  /** The number of the section's nodes (6.2). */
  #micro(): number {
    this.#scan.expect("micro ");
    const nodes = this.#scan.count(LIMITS.nodes, "the section");
    this.#scan.expect("\n");
    return nodes;
  }

  #carries(): Carry[] {
    const scan = this.#scan;
    const carries: Carry[] = [];
    while (scan.skips("carry ")) {
      if (carries.length >= LIMITS.slots) throw refuse("a program of too many carries");
      const name = this.#nameAfter(carries.at(-1)?.name ?? "");
      scan.expect(" ");
      carries.push({ name, value: this.#value() });
      scan.expect("\n");
    }
    return carries;
  }

  #node(index: number): TextNode {
    const scan = this.#scan;
    if (scan.count(LIMITS.nodes, "a node's index") !== index) throw refuse(`no node ${index}`);
    scan.expect(" = ");
    const operator = this.#name("an operator", OPERATOR);
    scan.expect("(");
    const operands = scan.skips(")")
      ? []
      : scan.list(", ", LIMITS.nodeInputs, "operands", () =>
          scan.skips("none") ? null : this.#values.source(this.#value()),
        );
    if (operands.length > 0) scan.expect(")");
    const attributes: Attributes = scan.skips("{") ? this.#attributes() : new Map();
    scan.expect(" : ");
    const outputs = scan.skips("none")
      ? []
      : scan.list(", ", LIMITS.nodeOutputs, "outputs", () => this.#type());
    scan.expect("\n");
    this.#values.addNode(outputs.length);
    return { operator, attributes, operands, outputs };
  }

  #attributes(): Attributes {
    const scan = this.#scan;
    // No string has a brace (2.5), so the first one ends the attributes.
    if (scan.distanceTo("}") > LIMITS.attributeBytes) throw refuse("attributes of too many bytes");
    const attributes = new Map<string, Attribute>();
    let name = "";
    do {
      name = this.#nameAfter(name, ATTRIBUTE);
      scan.expect("=");
      attributes.set(name, this.#attribute());
    } while (scan.skips(", "));
    scan.expect("}");
    return attributes;
  }

  #attribute(): Attribute {
    const scan = this.#scan;
    const text = scan.matches(STRING);
    if (text !== undefined) return text.slice(1, -1);
    if (scan.skips("[")) return this.#attributeList();
    if (scan.sees("t") || scan.sees("f")) return this.#bool();
    const float = scan.matches(FLOAT);
    return float === undefined ? scan.integer() : readHexFloat(float);
  }

  #attributeList(): Attribute {
    const scan = this.#scan;
    if (scan.skips("]")) return [];
    const most = LIMITS.attributeBytes;
    const list =
      scan.sees("t") || scan.sees("f")
        ? scan.list(",", most, "items", () => this.#bool())
        : scan.list(",", most, "items", () => scan.integer());
    scan.expect("]");
    return list;
  }

  #bool(): boolean {
    if (this.#scan.skips("true")) return true;
    this.#scan.expect("false");
    return false;
  }

  /** A value of 2.1. */
  #value(): Value {
    const scan = this.#scan;
    if (scan.skips("@")) return { input: this.#name("a name", NAME) };
    scan.expect("%");
    const node = scan.count(LIMITS.nodes, "a node's index");
    const output = scan.skips(".") ? scan.count(LIMITS.nodeOutputs, "an output's number") : null;
    return { node, output };
  }

  #outputs(): Named[] {
    const scan = this.#scan;
    const outputs: Named[] = [];
    while (scan.skips("output ")) {
      if (outputs.length >= 2 * LIMITS.slots) throw refuse("a program of too many outputs");
      const name = this.#nameAfter(outputs.at(-1)?.name ?? "");
      scan.expect(" ");
      outputs.push({ name, value: this.#values.source(this.#value()) });
      scan.expect("\n");
    }
    return outputs;
  }
}

/** The text's content; bytes that are no canonical text are refused (3.1, 3.3). */
export function readText(bytes: Uint8Array): ProgramText {
  if (bytes.length > LIMITS.programBytes) throw refuse(`a program of ${bytes.length} bytes`);
  // No token has a byte that 2.1 does not allow.
  return new TextReader(fromUtf8(bytes)).read();
}
