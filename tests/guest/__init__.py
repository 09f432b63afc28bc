"""What the daemon knows of and does to its machine."""
