"""Packs JSON log files into archives of the program clp-s, and searches these archives."""
