"""Bring removed files back."""
