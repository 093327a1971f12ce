/** Identifiers of contracts, setting by setting (PROGRAM 2.1, NUMERICS 13.1, 14.1, 17.1). */
import { expect, test } from "vitest";

import { contractOf } from "../../src/program/contract.ts";
import { orRefused, TABLE } from "./cases.ts";

const PUBLISHED = "replay/1-draft.1;b=27;form=published;scale=binary;tau=5";

const readOf = (identifier: string) => orRefused(() => contractOf(identifier, TABLE));

test.each([
  ["ordered/1-draft.1", { family: "ordered" }],
  ["rounded/1-draft.1", { family: "rounded", B: 32 }],
  ["rounded/1-draft.1;b=20", { family: "rounded", B: 20 }],
  ["rounded/1-draft.1;b=31", { family: "rounded", B: 31 }],
  ["replay/1-draft.1;b=32;form=bounded", { family: "bounded", B: 32 }],
  [PUBLISHED, { family: "published", B: 27 }],
  [PUBLISHED.replace("binary", "decimal"), { family: "published", B: 27 }],
  [`${PUBLISHED};tau.aten.mm=4;tau.aten.sum=0`, { family: "published", B: 27 }],
  ["exact/1-draft.1;b=8", { family: "exact", B: 8 }],
])("%s", (identifier, contract) => {
  expect(readOf(identifier)).toEqual(contract);
});

test.each([
  "ordered/1-draft.1;b=27",
  "ordered/1-draft.1;",
  "ordered/1",
  "ordered",
  "rounded/1-draft.1;c=27",
  "rounded/1-draft.1;b27",
  "rounded/1-draft.1;b=",
  "rounded/1-draft.1;b=027",
  "rounded/1-draft.1;b=19",
  "rounded/1-draft.1;b=32",
  "rounded/1-draft.1;b=33",
  "rounded/1-draft.1;b=27;b=27",
  "replay/1-draft.1;form=bounded;b=27",
  "replay/1-draft.1;b=27",
  "replay/1-draft.1;b=27;form=bounded;tau=5",
  PUBLISHED.replace("published", "other"),
  PUBLISHED.replace("scale", "scales"),
  PUBLISHED.replace("binary", "octal"),
  PUBLISHED.replace("tau", "tav"),
  PUBLISHED.replace(";tau=5", ""),
  `${PUBLISHED};tau.aten.mm`,
  `${PUBLISHED};tau.aten.mm=4;tau.aten.mm=4`,
  `${PUBLISHED};tau.aten.sum=4;tau.aten.mm=4`,
  `${PUBLISHED};tau.aten.mm=5`,
  `${PUBLISHED};tau.aten.mm=05`,
  `${PUBLISHED};tau.aten.none=4`,
  `${PUBLISHED};tav.aten.mm=4`,
  "exact/1-draft.1",
  "exact/1-draft.1;b=9",
  "exact/1-draft.1;b=8;b=8",
])("%s is refused", (identifier) => {
  expect(readOf(identifier)).toBe("refused");
});

test("an identifier has 1024 bytes at most", () => {
  const names = [...TABLE.keys()].filter((name) => name.length < 40).sort();
  const most = (bytes: number): string => {
    let text = PUBLISHED;
    for (const name of names) {
      const next = `${text};tau.${name}=`;
      const left = bytes - next.length;
      // A threshold has 20 digits at most: the last one fills what is left.
      if (left <= 20) return left < 1 ? "" : next + "9".repeat(left);
      text = `${next}4`;
    }
    return "";
  };
  const filled = most(1024) || most(1023);
  expect(filled.length).toBeGreaterThan(1022);
  expect(readOf(filled)).toEqual({ family: "published", B: 27 });
  const over = most(1025) || most(1026);
  expect(over.length).toBeGreaterThan(1024);
  expect(readOf(over)).toBe("refused");
});
