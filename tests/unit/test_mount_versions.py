"""A new version of a file is opened only if the operating system knows its size."""

from uuid import UUID

import pytest

from cafcat.model import Location
from cafcat.mount import versions as mount_versions
from cafcat.mount.versions import CachedVersions


def version(number: int, path: str = "a") -> Location:
    return Location(path, 0, number, 0, None, UUID(int=1), "store", "key")


def test_a_version_is_opened_that_was_looked_up() -> None:
    versions = CachedVersions(5)
    versions.add(version(1))
    assert versions.allows(version(1))
    assert versions.allows(version(1))


def test_a_version_that_appears_while_a_file_is_opened_is_looked_up_first() -> None:
    versions = CachedVersions(5)
    versions.add(version(1))
    assert not versions.allows(version(2))
    versions.add(version(2))
    assert versions.allows(version(2))


def test_a_version_that_replaces_another_one_is_looked_up_twice() -> None:
    """The answers about both versions may overtake each other."""
    versions = CachedVersions(5)
    versions.add(version(1))
    versions.add(version(2))
    assert not versions.allows(version(2))
    versions.add(version(2))
    assert versions.allows(version(2))


def test_a_late_answer_about_an_old_version() -> None:
    versions = CachedVersions(5)
    versions.add(version(2))
    versions.add(version(1))
    assert not versions.allows(version(2))
    versions.add(version(2))
    assert versions.allows(version(2))


def test_paths_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(mount_versions, "_MOST_PATHS", 10)
    monkeypatch.setattr(mount_versions.time, "monotonic", lambda: now)
    versions = CachedVersions(5)
    assert versions.allows(version(1))  # nothing was ever sent
    for number in range(100):
        versions.add(version(1, str(number)))
    assert len(versions._new) + len(versions._old) <= 20
    assert versions.allows(version(1, "99"))
    assert not versions.allows(version(1, "1"))
    now += 5.1
    assert versions.allows(version(1, "1"))  # what was forgotten was sent long ago
