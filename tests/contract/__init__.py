"""The published contract, and what the daemon says and does about it."""
