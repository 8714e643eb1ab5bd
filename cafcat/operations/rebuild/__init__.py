"""Fill an empty catalog from the contents of stores."""
