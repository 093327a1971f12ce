"""A small model of each family, trained in many ways that must give the same bits."""
