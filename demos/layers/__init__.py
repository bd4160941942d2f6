"""Layers trained with and without memory_optimize: a trainer, and paddle.Model. See __main__."""
