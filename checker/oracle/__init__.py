"""Models in other checkers' languages: somebody else's search over the same tables."""
