"""Change of the layout of file_locations while the catalog is in use (`cafcat db partition`)."""
