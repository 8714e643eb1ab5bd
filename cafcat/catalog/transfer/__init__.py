"""The whole catalog as a unit: dumps, rebuilds and comparisons."""
