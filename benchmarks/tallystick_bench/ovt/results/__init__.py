"""The results: raw ones on disk, and the rows, tables and plots made from them."""
