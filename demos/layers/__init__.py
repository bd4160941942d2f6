"""Layers trained with and without memory_optimize: a loop, and paddle.Model. See __main__."""
