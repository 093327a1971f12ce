"""What a model server keeps of its answers: receipts, and what disputes about them need, as long as
the receipts promise (ANSWERS 7.7)."""
