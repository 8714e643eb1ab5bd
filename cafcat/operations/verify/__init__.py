"""The operation `verify`: compares chunks, copies and sources with the catalog."""
