"""Lists of file names and URLs as sources."""
