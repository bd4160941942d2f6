"""Rewrites of the graph: one file a pass, one signature, `(graph, context) -> graph`."""
