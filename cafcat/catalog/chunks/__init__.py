"""Rows of chunks and of their copies, from the first lease to the deletion."""
