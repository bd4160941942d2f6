"""Back ends: each reads programs of one kind into graphs, and writes back what a plan makes of them."""
