"""Which tests of the suite apply to a server that only reads, and why the others do not. A plugin of pytest."""

from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

import pytest

__all__ = ["GROUPS", "Group", "Selection"]


class Group(NamedTuple):
    """Tests that do not apply.

    Attributes:
        reason: why they do not.
        names: patterns of their names, or of their files.
        markers: markers of pytest that they have.
    """

    reason: str
    names: str = ""
    markers: str = ""

    def has(self, item: pytest.Item) -> bool:
        name = getattr(item, "originalname", item.name)
        patterns = self.names.split()
        if any(fnmatchcase(name, pattern) or item.path.name == pattern for pattern in patterns):
            return True
        return any(item.get_closest_marker(marker) for marker in self.markers.split())


GROUPS = (
    Group("users, groups and roles", "test_iam.py"),
    Group("temporary credentials", "test_sts.py"),
    Group("notifications", "test_sns.py"),
    Group("S3 Select", "test_s3select.py"),
    Group("a function of the suite itself", "test_utils.py"),
    Group("access logs in buckets", markers="bucket_logging"),
    Group(
        "lifecycle, storage classes, other clouds",
        "test_lifecycle_*",
        "lifecycle lifecycle_expiration lifecycle_transition cloud_transition cloud_restore",
    ),
    Group("encryption", "test_*_sse_* test_*encrypted* test_*encryption*", "encryption sse_s3 bucket_encryption"),
    Group("object lock", "test_object_lock_*"),
    Group("policies of buckets", "test_*policy*", "bucket_policy"),
    Group("CORS", "test_set_cors test_cors_*"),
    Group("tags", "test_*_tags test_*_tags_* test_get_obj_tagging test_*_tagging", "tagging"),
    Group("ownership of objects", markers="object_ownership"),
    Group("checksums other than CRC-32C", "test_get_checksum_object_attributes", "checksum"),
    Group(
        "extensions of Ceph", "test_account_usage test_head_bucket_usage test_bucket_head_extended test_*_unordered"
    ),
    Group(
        "Ceph and Amazon S3 answer differently, or boto3 has a bug",
        "test_bucket_list_prefix_unreadable test_non_multipart_get_part test_object_read_unreadable "
        "test_object_raw_get_x_amz_expires_out_max_range test_object_raw_get_x_amz_expires_out_positive_range "
        "test_list_buckets_anonymous test_get_object_torrent",
    ),
    Group(
        "ACLs, and users who share objects by them",
        "test_bucket_acl_* test_object_acl test_object_acl_* test_versioned_object_acl* test_put_bucket_acl_* "
        "test_bucket_concurrent_set_canned_acl test_*_header_acl_grants test_object_presigned_put_object_with_acl* "
        "test_access_bucket_publicread* test_access_bucket_private_*_publicread* test_*_public_block "
        "test_block_public_* test_ignore_public_acls test_bucket_list_return_data* test_*_tenant",
    ),
    Group(
        "metadata that a catalog does not record; entity tags as MD5",
        "test_object_set_get_* test_object_metadata_* test_object_write_cache_control test_object_write_expires "
        "test_object_content_encoding_* test_object_write_check_etag",
    ),
    Group(
        "buckets without versions, deletion of single versions",
        "test_versioning_bucket_create_suspend test_versioning_obj_create_* test_versioning_obj_plain_* "
        "test_versioning_obj_suspend_versions test_versioning_stack_delete_merkers test_versioning_multi_object_* "
        "test_versioning_concurrent_* test_versioned_concurrent_* test_versioning_bucket_*_return_version_id "
        "test_delete_marker_nonversioned test_delete_marker_suspended test_get_object_attributes "
        "test_object_raw_get_bucket_gone test_object_raw_authenticated_bucket_gone",
    ),
    Group(
        "empty buckets, and when they were made",
        "test_bucket_list_empty test_bucket_list_distinct test_bucket_list*_objects_anonymous test_bucket_head "
        "test_bucket_list_long_name test_bucket_get_location test_buckets_create_then_list test_buckets_list_ctime "
        "test_list_buckets_paginated test_object_read_not_exist",
    ),
    Group(
        "writes: their headers, conditions, parts, forms, copies and deletions",
        "test_headers.py test_post_object_* test_*multipart* test_atomic_*write* test_put_object_* test_multi_* "
        "test_bucket_create_naming_* test_bucket_create_delete test_bucket_create_exists* test_bucket_delete_* "
        "test_bucket_recreate_* test_100_continue* test_object_put_authenticated test_object_raw_put_* "
        "test_object_anon_put* test_object_write_to_* test_object_write_with_* test_object_delete_* "
        "test_upload_part_copy_*",
        "copy conditional_write",
    ),
)


class Selection:
    """Leaves out the tests that do not apply, and prints how many tests passed, failed and do not apply."""

    def __init__(self, *, runs_every: bool) -> None:
        self._runs_every = runs_every
        self._reasons: dict[str, str] = {}
        """Why tests do not apply, by their ids."""
        self._failed: set[str] = set()
        self._run: set[str] = set()
        self._counted = 0
        self.count_made_up: Callable[[], int] = lambda: 0
        """Returns the number of answers that the proxy made up so far."""
        self._with_made_up: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            reason = next((group.reason for group in GROUPS if group.has(item)), None)
            if reason is not None:
                self._reasons[item.nodeid] = reason
        if not self._runs_every:
            left_out = [item for item in items if item.nodeid in self._reasons]
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in self._reasons]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._run.add(report.nodeid)
        counted, self._counted = self._counted, self.count_made_up()
        if counted < self._counted:
            self._with_made_up.add(report.nodeid)
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        applies = self._run - self._reasons.keys()
        failed = len(applies & self._failed)
        terminalreporter.write_line(f"{len(applies) - failed:5} pass")
        terminalreporter.write_line(f"{failed:5} fail")
        for reason, count in Counter(self._reasons.values()).most_common():
            terminalreporter.write_line(f"{count:5} do not apply: {reason}")
        for nodeid in sorted(applies & self._with_made_up):
            terminalreporter.write_line(f"got answers about an empty bucket from the proxy: {nodeid}")
        for nodeid in sorted(self._reasons.keys() & self._run - self._failed):
            terminalreporter.write_line(f"passes, but does not apply: {nodeid}")
