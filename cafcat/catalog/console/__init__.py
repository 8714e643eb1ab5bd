"""Queries of the console's pages, one module for each kind of page. None of them changes the catalog."""
