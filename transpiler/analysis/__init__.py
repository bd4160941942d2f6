"""What can be known of a graph without changing it: liveness, lifetimes, bytes over time."""
