"""Random programs of many operators, run whole in processes of their own: `python -m tests.wild --help`."""
