"""Rows of stores, and the identities of the catalog and its stores."""
