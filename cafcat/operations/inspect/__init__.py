"""Describe an archive and list its entries."""
