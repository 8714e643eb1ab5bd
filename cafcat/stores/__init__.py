"""Stores: the places where chunks are stored."""
