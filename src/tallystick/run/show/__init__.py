"""Tables for people and programs: a run's contents, its cost so far, and its expected cost."""
