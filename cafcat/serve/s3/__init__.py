"""The reading part of the S3 protocol: an ASGI application, and the keys with which programs sign requests."""

from typing import TYPE_CHECKING, Any

from cafcat.serve.s3.options import S3Options

if TYPE_CHECKING:
    from cafcat.serve.s3.app import s3_app

__all__ = ["S3Options", "s3_app"]


def __getattr__(name: str) -> Any:
    """Import the application when it is first used: the help of the command line needs the options only."""
    if name != "s3_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cafcat.serve.s3.app import s3_app

    return s3_app
