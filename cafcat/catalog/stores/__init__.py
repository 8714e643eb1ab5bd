"""Rows of stores, and the identities of the catalog and of its stores."""
