"""The commands that check, repair, copy and remove chunks and files."""
