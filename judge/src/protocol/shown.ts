/** Values as a verdict shows them to a person (docs/INTERFACE.md); no decision rests on the text. */
import { toHex } from "../bytes.ts";
import { bitsOfF32, f32OfBits, f64OfBits, numberOf, type Bits } from "../numbers/bits.ts";
import type { QuantityDtype } from "../operators/index.ts";
import { flagsOf, sumOfRecord } from "../operators/rounded.ts";

const hex = (bits: Bits, digits: number): string => `0x${bits.toString(16).padStart(digits, "0")}`;

const low64 = (bits: Bits, from: number): bigint => BigInt.asUintN(64, bits >> BigInt(from));

/** Fixed or scientific notation, as other judges write the same digits. */
function written(digits: string, x: number, least: number, most: number): string {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  const sign = x < 0 || Object.is(x, -0) ? "-" : "";
  const [mantissa = "", exponent = "0"] = digits.replace(/^-/, "").split("e");
  const power = Number(exponent);
  if (power < least || power >= most) {
    const size = Math.abs(power).toString().padStart(2, "0");
    return `${sign}${mantissa}e${power < 0 ? "-" : "+"}${size}`;
  }
  const figures = mantissa.replace(".", "");
  if (power < 0) return `${sign}0.${"0".repeat(-power - 1)}${figures}`;
  const whole = figures.slice(0, power + 1).padEnd(power + 1, "0");
  return `${sign}${whole}.${figures.slice(power + 1) || "0"}`;
}

/** So many places; of two that are equally near the even one, as other judges write it. */
function nearest(x: number, places: number): string {
  const exact = /^(-?[0-9](?:\.[0-9]+)?)e(.+)$/.exec(x.toExponential(100));
  const [, figures = "", power = ""] = exact ?? [];
  const end = figures.indexOf(".") + 1 + places;
  const below = figures.slice(0, places === 0 ? end - 1 : end);
  const isTie = /^50*$/.test(figures.slice(end));
  return isTie && Number(below.at(-1)) % 2 === 0 ? `${below}e${power}` : x.toExponential(places);
}

/** The shortest digits that give a binary32 number again. */
function shownF32(bits: Bits): string {
  const x = f32OfBits(Number(bits));
  let digits = x.toExponential();
  for (let places = 0; places < 9; places++) {
    const shorter = nearest(x, places);
    if (Math.fround(Number(shorter)) === x) {
      digits = shorter;
      break;
    }
  }
  return written(digits, x, -4, 6);
}

const shownF64 = (bits: Bits): string => {
  const x = f64OfBits(bits);
  return written(x.toExponential(), x, -4, 16);
};

/** Three figures, without zeros at the end. */
function rough(x: number): string {
  const digits = x.toExponential(2).replace(/\.?0+e/, "e");
  return written(digits, x, -4, 3).replace(/\.0$/, "");
}

/** A number n·2^q, to the nearest binary64. */
function shownDyadic(n: bigint, q: number): string {
  const size = n < 0n ? -n : n;
  const drop = Math.max(0, size.toString(2).length - 64);
  // Bits below the 64 highest ones only decide a tie.
  const kept = (size >> BigInt(drop)) | (size & ((1n << BigInt(drop)) - 1n) ? 1n : 0n);
  const x = (n < 0n ? -1 : 1) * Number(kept) * 2 ** (drop + q);
  return written(x.toExponential(), x, -4, 16);
}

function shownRecord(bits: Bits): string {
  const { n, q } = sumOfRecord(bits);
  const sum = n < 0n ? `-0x${(-n).toString(16)}` : `0x${n.toString(16)}`;
  const flags = flagsOf(bits).toString();
  return `the exact sum ${shownDyadic(n, q)} (${sum} * 2^-298, flags ${flags})`;
}

function shownBlock(bits: Bits): string {
  const sum = numberOf("i64", low64(bits, 64)).toString();
  const [mu, nu] = [128, 160].map((from) => hex(BigInt.asUintN(32, bits >> BigInt(from)), 8));
  const total = shownF64(low64(bits, 0));
  return `the total ${total}, the block's sum ${sum}, magnitudes ${mu ?? ""} and ${nu ?? ""}`;
}

/** A value of a quantity. */
export function shown(dtype: QuantityDtype, bits: Bits): string {
  switch (dtype) {
    case "f32":
      return `${shownF32(bits)} (${hex(bits, 8)})`;
    case "f64":
      return `${shownF64(bits)} (${hex(bits, 16)})`;
    case "real":
      return `${shownF64(low64(bits, 0))} within ${rough(f64OfBits(low64(bits, 64)))}`;
    case "acc":
      return shownRecord(bits);
    case "blk":
      return shownBlock(bits);
    case "bool":
      return bits === 0n ? "False" : "True";
    case "bf16":
    case "f16":
      return `${shownF32(BigInt(bitsOfF32(Number(numberOf(dtype, bits)))))} (${hex(bits, 4)})`;
    default:
      return numberOf(dtype, bits).toString();
  }
}

/** A loss, by the bits of its binary32 number. */
export const shownLoss = (bits: number): string => {
  const x = f32OfBits(bits);
  return `loss ${written(x.toExponential(), x, -4, 16)} (${hex(BigInt(bits), 8)})`;
};

/** A digest, by its first bytes. */
export const shownDigest = (digest: Uint8Array): string => toHex(digest.subarray(0, 8));
