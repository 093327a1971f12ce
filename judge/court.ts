/** The judges, with the table of operators in them. */
import table from "../vectors/operators.json" with { type: "json" };

import type { Court } from "./src/face/desk.ts";
import { courtOf } from "./src/face/court.ts";
import { readTable } from "./src/operators/index.ts";

export const court: Court = courtOf(readTable(table));
