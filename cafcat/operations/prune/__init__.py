"""Remove chunks that no path points to."""
