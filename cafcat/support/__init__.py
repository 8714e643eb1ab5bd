"""Functions for files, processes, checksums and values of the command line, used by every layer above."""
