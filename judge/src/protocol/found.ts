/**
 * What a game finds on its way, for the verdict of `judge --json` (docs/INTERFACE.md): the place
 * that it came to, the values stated there and executed, and how much was executed. One record goes
 * with a game, and is as it stands when the game ends.
 */
import type { Side } from "./queries.ts";

export class Found {
  phase: 0 | 1 | 2 | 3 = 0;
  interval: readonly [number, number] | null = null;
  step: number | null = null;
  node: number | null = null;
  operator: string | null = null;
  side: Side | null = null;
  operand: number | null = null;
  element: number | null = null;
  /** The name of the quantity that decided (OPENING 4.9). */
  quantity: string | null = null;
  claimed: readonly [string, string] = ["", ""];
  value = "";
  /** NUMERICS 14.8, of the disputed element. */
  choices: { readonly left: 0 | 1; readonly taken: 0 | 1 } = { left: 0, taken: 0 };
  /** Terms executed (OPENING 4.9). */
  terms = 0;

  /** The game has come to an output of a node. */
  output(step: number, node: number, operator: string, output: number): void {
    [this.step, this.node, this.operator] = [step, node, operator];
    [this.side, this.operand, this.element] = [1, output, null];
  }

  /** The game goes on in another step (PROTOCOL 6.14): nothing is found of it yet. */
  restart(): void {
    [this.interval, this.step, this.node, this.operator] = [null, null, null, null];
    [this.side, this.operand, this.element, this.quantity] = [null, null, null, null];
    [this.claimed, this.value] = [["", ""], ""];
    this.choices = { left: 0, taken: 0 };
  }

  /** The verdict rests on no execution: no values are shown for it. */
  withoutClaims(): void {
    [this.claimed, this.value] = [["", ""], ""];
  }

  /** What the last thing executed says: its name, both claims and its value. */
  decided(quantity: string | null, claimed: readonly [string, string], value = ""): void {
    [this.quantity, this.claimed, this.value] = [quantity, claimed, value];
  }
}
