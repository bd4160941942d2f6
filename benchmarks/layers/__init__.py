"""Layers that are trained in every way there is to need less memory: `python -m benchmarks.layers`."""
