"""The commands for the catalog, its stores and its database."""
