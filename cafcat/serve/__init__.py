"""A server for packed files: HTTP, batches, and the reading part of the S3 protocol."""
