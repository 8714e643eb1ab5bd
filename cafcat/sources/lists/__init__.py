"""Lists of names and URLs as sources: --files-from."""
