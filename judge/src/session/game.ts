/** The games of a session: those of PROTOCOL 1 to 6, one round at a time. */

import { refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import type { Begin } from "./fold.ts";
import type { Rules } from "./rules.ts";

export function gamesOf(_terms: Terms, _rules: Rules): Begin {
  return () => {
    throw refuse("games are missing");
  };
}
