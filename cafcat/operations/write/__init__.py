"""Packs files whose contents come from a program, as `Repository.writer`."""
