"""Write the catalog into a store as a backup."""
