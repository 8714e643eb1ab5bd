"""The commands that find and read files of the catalog."""
