"""Files of web servers as sources."""
