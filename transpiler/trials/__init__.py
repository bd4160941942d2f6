"""A program and what becomes of it, each run in a process of its own: results are compared, and what was needed is measured."""
