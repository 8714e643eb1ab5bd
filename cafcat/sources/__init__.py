"""Sources: files and folders that are ingested, on this machine and elsewhere."""
