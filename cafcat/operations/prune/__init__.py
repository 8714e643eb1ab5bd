"""Remove chunks that no path has pointed to for longer than their grace period."""
