"""Rematerialization of the main block: which forward values are dropped, and when they are computed again."""
