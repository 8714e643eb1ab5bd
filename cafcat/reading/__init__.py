"""Read files of the catalog: from a path to its bytes, one file or many."""
