"""The tests of Ceph's s3-tests that read, against the S3 server: `python -m tests.ceph_suite /path/to/s3-tests`.

The suite is not part of this project: https://github.com/ceph/s3-tests. docs/s3-tests.md has the result.
"""
