"""Write files of the catalog into one archive."""
