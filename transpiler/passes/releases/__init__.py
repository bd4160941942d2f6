"""Releases that a program makes by itself: `release_ops` adds the ops, the other modules say where they go."""
