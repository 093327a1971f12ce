/** Types of attention. */
import { describe } from "vitest";
import { check, type Change } from "./typecalls.ts";

const SEEN = { causal: true, first: 0n, window: 0n };
const SCORES = { ...SEEN, scale: 1, softcap: 0 };
const MOST = 2n ** 31n - 1n;
/** What 18.2 refuses where there are two queries and three keys. */
const PLACES: readonly Change[] = [
  [null, { first: -1n }, /first outside/],
  [null, { first: MOST + 1n }, /first outside/],
  [null, { window: -1n }, /window outside/],
  [null, { window: MOST + 1n }, /window outside/],
  [null, { window: 1n, causal: false }, /not causal/],
  [null, { window: 1n, first: 2n }, /none of 3 keys/],
  [null, { window: 5n, first: 6n }, /none of 3 keys/],
];

describe("attention (16.9)", () => {
  check([
    {
      name: "tallystick.attention_scores",
      ...{ operands: "[1,4,2,8] [1,2,3,8]", attributes: SCORES, outputs: "[1,4,2,3]" },
      also: [
        ["[1,4,2,8] [1,2,3,8] [4]", {}, "[1,4,2,3]"],
        ["[1,4,2,0] [1,1,3,0]", { first: MOST }, "[1,4,2,3]"],
        ["[0,0,2,8] [0,1,3,8] [0]", {}, "[0,0,2,3]"],
        [null, { window: 5n, first: 5n }, "[1,4,2,3]"],
        [null, { causal: false }, "[1,4,2,3]"],
      ],
      refused: [
        ...PLACES,
        ["[1,4,2,8] [1,3,3,8]", {}, /do not share/],
        ["[1,4,2,8] [1,0,3,8]", {}, /do not share/],
        ["[1,4,2,8] [2,2,3,8]", {}, /do not share/],
        ["[1,4,2,8] [1,2,3,7]", {}, /different lengths/],
        ["[1,4,2,8] [1,2,0,8]", {}, /none of 0 keys/],
        ["[4,2,8] [1,2,3,8]", {}, /3 axes/],
        ["[1,4,2,8] [1,2,3,8] [2]", {}, /slopes of shape/],
        ["[1,4,2,8] [1,2,3,8] i64[4]", {}, /slopes of dtype/],
        ["[1,4,2,8] none", {}, /needs its operand k/],
      ],
    },
    {
      name: "tallystick.attention_weights",
      ...{ operands: "[1,4,2,3]", attributes: SEEN, outputs: "[1,4,2,3]" },
      also: [["[1,4,2,3] [4]", { window: 1n, first: 1n }, "[1,4,2,3]"]],
      refused: [
        ...PLACES,
        ["[1,4,2,0]", {}, /none of 0 keys/],
        ["[1,4,2,3] [3]", {}, /sinks of shape/],
        ["[4,2,3]", {}, /3 axes/],
      ],
    },
    {
      name: "tallystick.attention_values",
      ...{ operands: "[1,4,2,3] [1,2,3,8]", attributes: SEEN, outputs: "[1,4,2,8]" },
      also: [["[1,4,2,3] [1,4,3,0]", {}, "[1,4,2,0]"]],
      refused: [
        ...PLACES,
        ["[1,4,2,3] [1,2,4,8]", {}, /other keys/],
        ["[1,4,2,3] [1,3,3,8]", {}, /do not share/],
        ["[1,4,2,3] [1,2,3]", {}, /3 axes/],
      ],
    },
  ]);
});
