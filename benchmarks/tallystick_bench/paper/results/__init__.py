"""From raw results to rows, tables and plots, with the papers' figures."""
