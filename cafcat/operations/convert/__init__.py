"""Write an archive anew in another format."""
