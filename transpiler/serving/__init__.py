"""Programs in files and in predictors: reading, outlining, running in parts, writing, checking."""
