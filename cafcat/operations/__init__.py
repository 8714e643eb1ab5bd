"""One package per verb: its options, its report, and `run`."""
