"""Archives that tests make, and archives that other programs made."""
