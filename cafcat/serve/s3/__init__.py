"""The reading part of the S3 protocol: an ASGI application, and the keys with which programs sign requests."""

from cafcat.serve.s3.app import s3_app
from cafcat.serve.s3.options import S3Options

__all__ = ["S3Options", "s3_app"]
