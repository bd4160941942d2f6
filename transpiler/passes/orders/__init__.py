"""Orders of the ops of one region that need less memory: pure functions `(problem) -> order`, one judge."""
