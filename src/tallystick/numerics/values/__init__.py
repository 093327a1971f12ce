"""What an operator computes of one element, as data: a language, and forms written in it."""
