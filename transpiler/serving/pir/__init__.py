"""Saved programs of Paddle 3: `.json` with `.pdiparams`."""
