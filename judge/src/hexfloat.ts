/** Binary64 numbers in hexadecimal (COMMITMENTS 1.10, PROGRAM 2.5: one and the same form). */

import { refuse } from "./errors.ts";

const FORM = /^(-?)0x([01])\.([0-9a-f]{13})p([+-])(0|[1-9][0-9]{0,3})$/;
const WORDS = new Map([
  ["inf", Infinity],
  ["-inf", -Infinity],
  ["nan", NaN],
  ["0x0.0p+0", 0],
  ["-0x0.0p+0", -0],
]);

const view = new DataView(new ArrayBuffer(8));

/** The number of its only written form; every other form is refused. */
export function readHexFloat(text: string): number {
  const word = WORDS.get(text);
  if (word !== undefined) return word;
  const [, minus, lead, fraction, sign, digits] = FORM.exec(text) ?? [];
  if (fraction === undefined) throw refuse("no binary64 in hexadecimal");
  const exponent = Number(`${sign ?? ""}${digits ?? ""}`);
  const normal = lead === "1";
  if (normal ? exponent < -1022 || exponent > 1023 : exponent !== -1022) {
    throw refuse("a binary64 with another exponent");
  }
  const mantissa = BigInt(`0x${fraction}`);
  if (!normal && mantissa === 0n) throw refuse("a zero that is written otherwise");
  const biased = normal ? BigInt(exponent + 1023) : 0n;
  view.setBigUint64(0, ((minus === "-" ? 1n : 0n) << 63n) | (biased << 52n) | mantissa);
  if (exponent === 0 && sign === "-") throw refuse("an exponent -0");
  return view.getFloat64(0);
}

/** The form of COMMITMENTS 1.10. */
export function writeHexFloat(value: number): string {
  if (Number.isNaN(value)) return "nan";
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  const minus = bits >> 63n === 1n ? "-" : "";
  if (!Number.isFinite(value)) return `${minus}inf`;
  if (value === 0) return `${minus}0x0.0p+0`;
  const biased = Number((bits >> 52n) & 0x7ffn);
  const fraction = (bits & 0xfffffffffffffn).toString(16).padStart(13, "0");
  const exponent = biased === 0 ? -1022 : biased - 1023;
  return `${minus}0x${biased === 0 ? 0 : 1}.${fraction}p${exponent < 0 ? "" : "+"}${exponent}`;
}
