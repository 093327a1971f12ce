/** What a bound of a comparison is, and what it is shifted by one (`tools/changes.js`). */
export function compared(kind: string, isShifted: boolean, a: number, b: number): boolean {
  if (kind === "<") return isShifted ? a <= b : a < b;
  if (kind === "<=") return isShifted ? a < b : a <= b;
  if (kind === ">") return isShifted ? a >= b : a > b;
  return isShifted ? a > b : a >= b;
}
