"""Orders in which what happens reaches the real handlers."""
