"""Archives as files, whatever catalog there is: looked into, rewritten in another format, made of packed files.

A use case above `resolve`, as it makes its files the way reading does and, for an export, of what reading gives.
Where an archive comes from (a file, an object of a bucket) is known here, so that formats need not know it.
"""
