"""What several callers saw of a daemon at once, and whether one order of it all explains it."""
