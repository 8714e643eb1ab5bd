"""Write the contents of an archive into a new archive of any format."""
