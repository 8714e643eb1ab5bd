"""Files and folders of a local file system as sources."""
