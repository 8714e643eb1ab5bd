"""Archives of JSON logs: packing and searching."""
