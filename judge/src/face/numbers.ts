/** By how much a number is false, from the words in which a judge gives numbers. */

const DECIMAL =
  /^(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?|nan|-?inf)(?: \(0x[0-9a-f]+\)| within \S+)?$/;

const WHOLE = /^-?[0-9]+$/;

/** The number that a text begins with; undefined where it is none, a digest for example. */
export function numberIn(text: string): number | undefined {
  const digits = DECIMAL.exec(text)?.[1];
  if (digits === undefined) return undefined;
  if (digits === "nan") return NaN;
  return Number(digits.replace("inf", "Infinity"));
}

const short = (value: number): string => String(Number(value.toPrecision(3)));

/** How a factor is said: "about 2 times the right one", or "23 %". Of two negative numbers the one
 * that is lower has the greater factor, so their factor is not said. */
function relation(stated: number, right: number): string {
  const share = Math.abs(stated - right) / Math.abs(right);
  if (stated === -right) return " (the right size with the wrong sign)";
  if (stated * right < 0) return " (of the wrong sign)";
  const factor = stated / right;
  if (factor < 1.5 && factor > 0.6) return ` (${short(100 * share)} %)`;
  return right < 0 ? "" : ` (about ${short(factor)} times the right one)`;
}

/** Of classes and places, of which a ratio says nothing. They may have more digits than a number of
 * this language holds. */
function wholeDifference(stated: string, right: string): string | undefined {
  const off = BigInt(stated) - BigInt(right);
  if (off === 0n) return undefined;
  return off > 0n ? `higher by ${off}` : `lower by ${-off}`;
}

/** "higher by 0.5 (about 2 times the right one)"; undefined where no difference can be said. */
export function difference(stated: string, right: string): string | undefined {
  if (WHOLE.test(stated) && WHOLE.test(right)) return wholeDifference(stated, right);
  const [a, b] = [numberIn(stated), numberIn(right)];
  if (a === undefined || b === undefined) return undefined;
  if (!Number.isFinite(a) && Number.isFinite(b)) return "not an ordinary number at all";
  const off = a - b;
  if (!Number.isFinite(off)) return undefined;
  if (off === 0) return "off by less than these digits show";
  const amount = `${off > 0 ? "higher" : "lower"} by ${short(Math.abs(off))}`;
  if (b === 0) return amount;
  return amount + relation(a, b);
}

/** A number without the bits behind it. */
export function plain(text: string): string {
  return text.replace(/ \(0x[0-9a-f]+\)$/, "");
}
