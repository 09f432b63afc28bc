"""Thin wrappers of Linux system calls and of /proc: a function per call, typed, `OSError.errno` kept."""
