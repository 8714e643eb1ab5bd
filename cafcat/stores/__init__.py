"""Stores: where chunks live."""
