"""Machine translation with its attention decoder in a while loop, before and after optimisation."""
