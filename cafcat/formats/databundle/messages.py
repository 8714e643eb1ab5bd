"""Makes classes for the protobuf messages of DataBundle's published design, and for one message of cafcat.

The messages of the design are in proto3 and in the package `storage`.

The messages are described here instead of in generated code, which would be much longer. Importing protobuf takes
some 30 ms. It is imported when the metadata of a DataBundle is first read or written.
"""

from functools import cache
from typing import Any, Final, NamedTuple

from cafcat.formats.databundle.extras import import_extra

__all__ = ["DIRECTORY", "FILE_TYPE_URL", "REGULAR", "Messages", "messages"]

REGULAR: Final = 1
"""Value of BundleFileMetadata.type for files."""
DIRECTORY: Final = 2
"""Value of BundleFileMetadata.type for directories."""
FILE_TYPE_URL: Final = "type.googleapis.com/cafcat.BundleFile"
"""Type of the user_data of files in chunks of cafcat."""

_Definitions = dict[str, tuple[str, ...]]

# Each field has a number, a type and a name. A type with a dot is a message. "repeated" or "optional" may precede
# the type. "/metadata" after the name makes the field part of the oneof "metadata".
_STORAGE: Final[_Definitions] = {
    "BundleShardHeader": (
        "1 uint64 shard_index",
        "2 uint64 shard_count",
        "3 uint64 record_size",
        "4 uint64 record_alignment",
        # An enum in the design. As int32 it has the same bytes, and unknown values are read, too.
        "5 int32 compression_method",
        "6 .storage.BundleMetadataTable inline_metadata_table/metadata",
        "7 bool metadata_at_eof/metadata",
        "8 bool external_metadata/metadata",
    ),
    # The published file has the first three fields, in a comment. cafcat adds the other two.
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
_CAFCAT: Final[_Definitions] = {
    "BundleFile": (
        "1 optional sint64 modified_ns",
        "2 uint64 start_byte",
        "3 uint64 end_byte",
        "4 string decoding",
    ),
}


class Messages(NamedTuple):
    """The protobuf message classes of DataBundle. `DecodeError` is the error that their `FromString` raises."""

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
    """Return the protobuf message classes. The first call imports protobuf.

    Raises:
        NotInstalled: protobuf is not installed.
    """
    any_pb2 = import_extra("google.protobuf.any_pb2")
    factory = import_extra("google.protobuf.message_factory")
    pool = import_extra("google.protobuf.descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    for package, definitions in (("storage", _STORAGE), ("cafcat", _CAFCAT)):
        pool.Add(_file(package, definitions))

    def message_class(name: str) -> Any:
        return factory.GetMessageClass(pool.FindMessageTypeByName(name))

    return Messages(
        message_class("google.protobuf.Any"),
        message_class("storage.BundleConfig"),
        message_class("cafcat.BundleFile"),
        message_class("storage.BundleFileMetadata"),
        message_class("storage.BundleRecordMetadata"),
        message_class("storage.BundleMetadataRow"),
        message_class("storage.BundleShardHeader"),
        message_class("storage.BundleMetadataTable"),
        import_extra("google.protobuf.message").DecodeError,
    )


def _file(package: str, definitions: _Definitions) -> Any:
    descriptors = import_extra("google.protobuf.descriptor_pb2")
    file = descriptors.FileDescriptorProto(name=f"{package}/bundle.proto", package=package, syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")
    for name, fields in definitions.items():
        message = file.message_type.add(name=name)
        for line in fields:
            _add_field(message, *line.split())
    return file


def _add_field(message: Any, number: str, *words: str) -> None:
    *rule, kind, name = words
    name, _, oneof = name.partition("/")
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if rule == ["repeated"] else field.LABEL_OPTIONAL
    field.type = field.TYPE_MESSAGE if "." in kind else getattr(field, f"TYPE_{kind.upper()}")
    if "." in kind:
        field.type_name = kind
    if rule == ["optional"]:  # in proto3 the presence of a number is tracked by a oneof with this field only
        field.proto3_optional, oneof = True, f"_{name}"
    if oneof and all(existing.name != oneof for existing in message.oneof_decl):
        message.oneof_decl.add(name=oneof)
    if oneof:
        field.oneof_index = len(message.oneof_decl) - 1
