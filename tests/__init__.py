"""The tests, in the tiers that docs/testing.md lists."""
