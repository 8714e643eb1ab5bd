"""The messages of the published design (proto3, package `storage`), and one of cafcat's own, as protobuf classes.

They are described here and not generated: a few lines say what hundreds would. Importing protobuf takes some 30 ms,
so nobody does before a bundle is read or written.
"""

from functools import cache
from typing import Any, Final, NamedTuple

from cafcat.formats.databundle.extras import extra

__all__ = ["DIRECTORY", "FILE_TYPE_URL", "REGULAR", "Messages", "messages"]

REGULAR: Final = 1
DIRECTORY: Final = 2
FILE_TYPE_URL: Final = "type.googleapis.com/cafcat.BundleFile"

_Described = dict[str, tuple[str, ...]]

# Each field: number, type, name; a type with a dot is a message, "repeated" and "optional" go before it, and
# "/metadata" behind the name puts it into that oneof.
_STORAGE: Final[_Described] = {
    "BundleShardHeader": (
        "1 uint64 shard_index",
        "2 uint64 shard_count",
        "3 uint64 record_size",
        "4 uint64 record_alignment",
        "5 int32 compression_method",  # an enum: the same bytes, and a number that is not known yet does no harm
        "6 .storage.BundleMetadataTable inline_metadata_table/metadata",
        "7 bool metadata_at_eof/metadata",
        "8 bool external_metadata/metadata",
    ),
    # Only a comment in the published file has the first three; the others are this program's.
    "BundleConfig": (
        "1 string version_magic",
        "2 uint64 block_size",
        "3 uint64 record_size",
        "4 int32 compression_method",
        "5 uint64 shard_count",
    ),
    "BundleMetadataTable": ("1 repeated .storage.BundleMetadataRow rows", "15 bytes cafcat_trailer"),
    "BundleMetadataRow": ("1 bytes key", "2 bytes value"),
    "BundleFileMetadata": (
        "1 int32 type",
        "2 uint64 shard_index",
        "3 uint64 shard_uncompressed_offset",
        "4 uint64 uncompressed_size",
        "5 uint32 crc32c",
        "6 .google.protobuf.Any user_data",
    ),
    "BundleRecordMetadata": (
        "1 uint64 shard_index",
        "2 uint64 shard_uncompressed_offset",
        "3 uint64 shard_byte_offset/storage",
        "4 bool all_zeros/storage",
    ),
}
_CAFCAT: Final[_Described] = {
    "BundleFile": (
        "1 optional sint64 modified_ns",
        "2 uint64 start_byte",
        "3 uint64 end_byte",
        "4 string decoding",
    ),
}


class Messages(NamedTuple):
    """Classes of protobuf messages. DecodeError is what their FromString raises."""

    Any: Any
    BundleConfig: Any
    BundleFile: Any
    FileMetadata: Any
    RecordMetadata: Any
    Row: Any
    ShardHeader: Any
    Table: Any
    DecodeError: Any


@cache
def messages() -> Messages:
    """Raises NotInstalled if protobuf is not installed."""
    any_pb2 = extra("google.protobuf.any_pb2")
    factory = extra("google.protobuf.message_factory")
    pool = extra("google.protobuf.descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    for package, described in (("storage", _STORAGE), ("cafcat", _CAFCAT)):
        pool.Add(_file(package, described))

    def made(name: str) -> Any:
        return factory.GetMessageClass(pool.FindMessageTypeByName(name))

    return Messages(
        made("google.protobuf.Any"),
        made("storage.BundleConfig"),
        made("cafcat.BundleFile"),
        made("storage.BundleFileMetadata"),
        made("storage.BundleRecordMetadata"),
        made("storage.BundleMetadataRow"),
        made("storage.BundleShardHeader"),
        made("storage.BundleMetadataTable"),
        extra("google.protobuf.message").DecodeError,
    )


def _file(package: str, described: _Described) -> Any:
    descriptors = extra("google.protobuf.descriptor_pb2")
    file = descriptors.FileDescriptorProto(name=f"{package}/bundle.proto", package=package, syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")
    for name, fields in described.items():
        message = file.message_type.add(name=name)
        for line in fields:
            _add_field(message, *line.split())
    return file


def _add_field(message: Any, number: str, *words: str) -> None:
    *rule, kind, name = words
    name, _, union = name.partition("/")
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if rule == ["repeated"] else field.LABEL_OPTIONAL
    field.type = field.TYPE_MESSAGE if "." in kind else getattr(field, f"TYPE_{kind.upper()}")
    if "." in kind:
        field.type_name = kind
    if rule == ["optional"]:  # proto3 knows of a number whether it is there by a oneof of its own
        field.proto3_optional, union = True, f"_{name}"
    if union and all(known.name != union for known in message.oneof_decl):
        message.oneof_decl.add(name=union)
    if union:
        field.oneof_index = len(message.oneof_decl) - 1
