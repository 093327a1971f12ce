"""A model server: OpenAI's interface, each answer with a signed receipt (docs/INTERFACE.md)."""
