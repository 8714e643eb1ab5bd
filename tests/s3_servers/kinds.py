"""All kinds of S3 servers, by name."""

from tests.s3_servers.base import ServerKind
from tests.s3_servers.ceph import CephRGW
from tests.s3_servers.seaweedfs import SeaweedFS
from tests.s3_servers.small import LocalStack, MiniStack, Moto, Rclone, S3rver
from tests.s3_servers.swift import Swift

__all__ = ["DEFAULT_KIND", "KINDS"]

_ALL: list[ServerKind] = [
    SeaweedFS(),
    Swift(),
    Rclone(),
    Moto(),
    LocalStack(),
    CephRGW(),
    MiniStack(),
    S3rver(),
]
KINDS = {kind.name: kind for kind in _ALL}
DEFAULT_KIND = "swift"
