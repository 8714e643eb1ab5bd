"""Pack new and changed files of sources into chunks."""
