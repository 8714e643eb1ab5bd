"""The operation `doctor`: checks of the installation, the settings, the database, the stores and the catalog.

To add a check: write a function in the module of its theme, and add a line to the table in `checks.py`.
"""
