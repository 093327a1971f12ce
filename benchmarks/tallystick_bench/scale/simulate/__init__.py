"""A distributed run as discrete events: failures, stragglers, liars, restarts, parallel audits.

Workers meet in every step, so between two events the whole run is one clock: a step takes as long
as its slowest worker and what follows the micro-batches. A step is interrupted by the next event.
"""
