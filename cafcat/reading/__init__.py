"""Read files of the catalog by path, one or many, and write them to files of the user."""
