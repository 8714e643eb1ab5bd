"""Real S3 servers for the tests, one module for each kind. See kinds.py."""
