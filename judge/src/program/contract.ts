/** Identifiers of contracts (PROGRAM 2.1, NUMERICS 13.1, 14.1, 17.1). */
import { refuse } from "../errors.ts";
import type { LogForm } from "../logs.ts";
import type { Contract, OperatorTable } from "../operators/index.ts";

/** Limits of PROGRAM 2.1. */
const IDENTIFIER_BYTES = 1024;
const SETTINGS = 100;

const SETTING = /^([A-Za-z0-9_.]{1,80})=([a-z0-9]{1,20})$/;
/** A setting that is a whole number has no leading zero. */
const WHOLE = /^(?:0|[1-9][0-9]*)$/;

/** The bits that rounded/1 keeps where its identifier does not say so (NUMERICS 13.1). */
const ALL_BITS = 32;
const EXACT_BITS = [8, 15, 22];
const THRESHOLD = "tau.";

type Setting = readonly [key: string, value: string];

function settingsOf(parts: readonly string[]): Setting[] {
  if (parts.length > SETTINGS) throw refuse("a contract of too many settings");
  return parts.map((part) => {
    const [, key, value] = SETTING.exec(part) ?? [];
    if (key === undefined || value === undefined) throw refuse("a setting that is none of 2.1");
    return [key, value];
  });
}

function wholeOf(value: string | undefined): bigint {
  if (value === undefined || !WHOLE.test(value)) throw refuse("a setting that is no whole number");
  return BigInt(value);
}

/** The value of the setting that must stand at a place. */
function valueAt(settings: readonly Setting[], at: number, key: string): string {
  const [name, value] = settings[at] ?? [];
  if (name !== key || value === undefined) throw refuse(`a contract without ${key} in its place`);
  return value;
}

/** B of NUMERICS 13.1 and 14.1. */
function bitsAt(settings: readonly Setting[], at: number): number {
  const bits = wholeOf(valueAt(settings, at, "b"));
  if (bits < 20n || bits > 32n) throw refuse("a contract with B out of range");
  return Number(bits);
}

function rounded(settings: readonly Setting[]): Contract {
  if (settings.length === 0) return { family: "rounded", B: ALL_BITS };
  const B = bitsAt(settings, 0);
  if (settings.length > 1 || B === ALL_BITS) throw refuse("rounded/1 with other settings");
  return { family: "rounded", B };
}

/** The thresholds of NUMERICS 14.1: the default, then operators with another one. */
function checkThresholds(settings: readonly Setting[], table: OperatorTable): void {
  const usual = wholeOf(valueAt(settings, 0, "tau"));
  let before = "";
  for (const [key, value] of settings.slice(1)) {
    const operator = key.slice(THRESHOLD.length);
    if (!key.startsWith(THRESHOLD) || !table.has(operator)) throw refuse(`no threshold: ${key}`);
    if (operator <= before) throw refuse("thresholds out of order");
    if (wholeOf(value) === usual) throw refuse("a threshold that is the default");
    before = operator;
  }
}

function replay(settings: readonly Setting[], table: OperatorTable): Contract {
  const B = bitsAt(settings, 0);
  const form = valueAt(settings, 1, "form");
  if (form === "bounded") {
    if (settings.length > 2) throw refuse("the bounded form with other settings");
    return { family: "bounded", B };
  }
  if (form !== "published") throw refuse("a form of logs that is none");
  const scale = valueAt(settings, 2, "scale");
  if (scale !== "binary" && scale !== "decimal") throw refuse("a scale that is none");
  checkThresholds(settings.slice(3), table);
  return { family: "published", B };
}

function exact(settings: readonly Setting[]): Contract {
  const B = Number(wholeOf(valueAt(settings, 0, "b")));
  if (settings.length > 1 || !EXACT_BITS.includes(B)) throw refuse("exact/1 with other settings");
  return { family: "exact", B };
}

/** The contract of a canonical identifier; every other text is refused. */
export function contractOf(identifier: string, table: OperatorTable): Contract {
  if (identifier.length > IDENTIFIER_BYTES) throw refuse("a contract's identifier is too long");
  const [family = "", ...parts] = identifier.split(";");
  const settings = settingsOf(parts);
  switch (family) {
    case "ordered/1-draft.1":
      if (settings.length > 0) throw refuse("ordered/1 has no settings");
      return { family: "ordered" };
    case "rounded/1-draft.1":
      return rounded(settings);
    case "replay/1-draft.1":
      return replay(settings, table);
    case "exact/1-draft.1":
      return exact(settings);
    default:
      throw refuse(`there is no contract ${family}`);
  }
}

/** A contract's name without its draft and settings: `ordered/1`. */
export const nameOf = (identifier: string): string => identifier.replace(/(-.*|;.*)$/, "");

/** The form of rounding logs that a contract has, if any (NUMERICS 14.2, 14.9). */
export function logFormOf({ family }: Contract): LogForm | null {
  return family === "bounded" || family === "published" ? family : null;
}
