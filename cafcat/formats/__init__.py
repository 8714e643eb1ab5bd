"""Archive formats: bytes to entries and back."""
