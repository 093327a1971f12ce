"""What was measured: raw results on disk, and the rows, tables and plots made from them."""
