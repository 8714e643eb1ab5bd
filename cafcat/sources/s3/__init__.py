"""Buckets, and S3 Inventory reports, as sources."""
