"""Archives as files, without a catalog: open them, convert them to another format, and write new ones.

This package may use stores and the read path. It knows where archives are stored (a local file or an object of a
bucket), so that formats need not.
"""
