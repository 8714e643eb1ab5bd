"""Writing one chunk: its row, its object, its mapping, its line in the journal."""
