"""Packed files as data sets for training."""
