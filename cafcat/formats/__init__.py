"""Archive formats: each reads archives as entries, and writes entries as an archive."""
