"""Graphs in text files as programs: the smallest back end there can be, and what a new one may begin as a copy of."""
