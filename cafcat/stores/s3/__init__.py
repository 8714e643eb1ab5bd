"""Stores in S3 buckets."""
