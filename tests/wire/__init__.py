"""Tests through a real socket, of a daemon in a process of its own."""
