"""The operation `ingest`: packs new and changed files of sources into chunks."""
