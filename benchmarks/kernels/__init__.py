"""What kernels allocate for themselves: every kernel runs alone, at several sizes; see `__main__`."""
