"""Named programs, and commands that measure them: `python -m benchmarks --list`."""
