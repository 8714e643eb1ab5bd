"""The commands for the installation: configuration, completion and version."""
