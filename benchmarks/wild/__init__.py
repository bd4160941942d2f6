"""Programs as people write them: whole model families, and the features of training scripts, each measured and compared."""
