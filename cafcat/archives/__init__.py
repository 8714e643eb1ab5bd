"""Opens archives by their path or URL, and writes new archives as files. Uses no catalog.

This package may use stores and the read path. It finds where an archive is stored (a local file, or an object of a
bucket), so that formats need not.
"""
