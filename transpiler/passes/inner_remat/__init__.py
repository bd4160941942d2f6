"""Which values of loops and branches their gradients rebuild: the problem, the minimum cut, and the rewrite."""
