"""The system call wrappers, against the kernel that runs the tests."""
