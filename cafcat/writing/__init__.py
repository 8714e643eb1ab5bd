"""Writing one chunk: its row, its object, its mapping, its journal record."""
