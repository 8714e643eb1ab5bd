"""Files on web servers as sources."""
