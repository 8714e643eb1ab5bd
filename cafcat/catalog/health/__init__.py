"""The state of the database server and of the catalog, as `cafcat doctor` and the metrics show it."""
