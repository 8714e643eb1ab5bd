"""Files and folders of the local file system as sources."""
