"""Objects in S3 buckets as sources."""
