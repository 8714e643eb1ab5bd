"""S3 as stores and sources both use it: connections, reading, errors."""
