"""The conformance suite for stores. Inherit StoreSuite, override its two fixtures, and run pytest."""

import threading
from collections.abc import Iterator
from typing import Protocol

import pytest

from cafcat.errors import CafcatError, Conflict, Corrupt, InvalidInput, NotFound
from cafcat.stores.base import HEAD_BYTES, ObjectInfo, Store, StoredObject, Upload
from cafcat.support.checksums import crc64nvme

__all__ = ["RawObjects", "StoreSuite"]

MIB = 1 << 20

BAD_KEYS = ["", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "./a", "a/./b", "a\0b", "\udcff"]
"""Keys that every store must refuse."""
BAD_KEYS += ["k" * 300, "k/" * 600 + "k"]


class RawObjects(Protocol):
    """Reads and writes the objects of a store without using the store."""

    def write(self, key: str, data: bytes) -> None:
        """Create an object, or replace the object with this key."""

    def read(self, key: str) -> bytes | None:
        """Return the bytes of the object with this key, or None if the store has no such object."""


def put(store: Store, key: str, data: bytes) -> None:
    """Write an object by the methods of the store, and commit it."""
    upload = store.create(key)
    upload.write(data)
    upload.commit()


class StoreSuite:
    """Tests that each store must pass. Inherit this class; override the fixtures `store` and `raw`."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Yield an empty store."""
        raise NotImplementedError

    @pytest.fixture
    def raw(self, store: Store) -> RawObjects:
        """Return an object that reads and writes the objects of the store without using the store."""
        raise NotImplementedError

    ordered = True
    """Override it with False if the server does not list keys in the order of their bytes."""
    never_replaces = True
    """Override it with False if the server ignores If-None-Match, so that a new object can replace another one."""

    @pytest.mark.parametrize("size_bytes", [0, 1, 4095, 4096, 4097, 3 * MIB, 9 * MIB + 1])
    def test_an_object_comes_back_as_it_was_written(self, store: Store, raw: RawObjects, size_bytes: int) -> None:
        """An object of any size can be read again, and `Store.stat` returns its size."""
        data = bytes(range(251)) * (size_bytes // 251 + 1)
        data = data[:size_bytes]
        put(store, "chunk.caf", data)
        assert raw.read("chunk.caf") == data
        assert store.read("chunk.caf", 0, size_bytes) == data
        assert store.stat("chunk.caf")[:2] == ("chunk.caf", size_bytes)

    def test_pieces_are_put_together_in_order(self, store: Store, raw: RawObjects) -> None:
        """Pieces of any size, written one after the other with `Upload.write`, become one object in this order."""
        pieces = [bytes([n]) * (n * 1237 % 5000) for n in range(200)]
        upload = store.create("chunk.caf")
        for piece in pieces:
            upload.write(memoryview(piece))
        upload.commit()
        assert raw.read("chunk.caf") == b"".join(pieces)

    def test_a_buffer_may_be_used_again_after_each_write(self, store: Store, raw: RawObjects) -> None:
        """`Upload.write` copies the bytes before it returns."""
        buffer = bytearray(MIB)
        upload = store.create("chunk.caf")
        for n in range(20):
            buffer[:] = bytes([n]) * MIB
            upload.write(memoryview(buffer))
        upload.commit()
        assert raw.read("chunk.caf") == b"".join(bytes([n]) * MIB for n in range(20))

    def test_nobody_sees_an_object_before_commit(self, store: Store, raw: RawObjects) -> None:
        """An unfinished upload is invisible to reads and listings."""
        upload = store.create("folder/chunk.caf")
        upload.write(b"half" * MIB)
        assert raw.read("folder/chunk.caf") is None
        assert list(store.list()) == []
        with pytest.raises(NotFound):
            store.stat("folder/chunk.caf")
        with pytest.raises(NotFound):
            store.read("folder/chunk.caf", 0, 1)
        upload.commit()
        assert list(store.list()) == [ObjectInfo("folder/chunk.caf", 4 * MIB)]

    def test_abort_leaves_nothing_and_frees_the_key(self, store: Store, raw: RawObjects) -> None:
        """No object is visible after `Upload.abort`, and the key is free. A second `abort` does nothing."""
        upload = store.create("chunk.caf")
        upload.write(b"first" * MIB)
        upload.abort()
        upload.abort()
        assert raw.read("chunk.caf") is None
        assert list(store.list()) == []
        put(store, "chunk.caf", b"second")
        assert raw.read("chunk.caf") == b"second"

    def test_abort_after_commit_does_nothing(self, store: Store, raw: RawObjects) -> None:
        """`Upload.abort` does not remove a committed object."""
        upload = store.create("chunk.caf")
        upload.write(b"stays")
        upload.commit()
        upload.abort()
        assert raw.read("chunk.caf") == b"stays"

    @pytest.mark.parametrize("size_bytes", [1, 110, 4096, 5000, 5 * MIB, 11 * MIB + 1, 23 * MIB])
    def test_the_head_can_be_written_anew(self, store: Store, raw: RawObjects, size_bytes: int) -> None:
        """`Upload.rewrite_head` replaces the first bytes of an upload of any size, before the commit."""
        data = bytes(range(251)) * (size_bytes // 251 + 1)
        data = data[:size_bytes]
        head = b"!" * min(size_bytes, HEAD_BYTES)
        upload = store.create("chunk.caf", rewrites_head=True)
        for start in range(0, size_bytes, MIB):
            upload.write(data[start : start + MIB])
        assert raw.read("chunk.caf") is None
        upload.rewrite_head(head)
        expected = head + data[len(head) :]
        upload.commit(crc64nvme(expected))
        assert raw.read("chunk.caf") == expected

    def test_a_head_that_stays_as_it_was(self, store: Store, raw: RawObjects) -> None:
        """An upload with `rewrites_head` can be committed without `rewrite_head`."""
        for key, data in (("nothing", b""), ("small", b"small"), ("large", bytes(range(250)) * (MIB // 20))):
            upload = store.create(key, rewrites_head=True)
            upload.write(data)
            upload.commit(crc64nvme(data))
            assert raw.read(key) == data

    def test_two_heads_are_written_anew_at_once(self, store: Store, raw: RawObjects) -> None:
        """Two uploads with `rewrites_head` do not disturb each other."""
        uploads = {key: store.create(key, rewrites_head=True) for key in ("first", "second")}
        for n in range(12):
            for key, upload in uploads.items():
                upload.write(f"{key}{n}".encode() * (MIB // 8))
        for key, upload in reversed(uploads.items()):
            upload.rewrite_head(key[:4].encode().upper())
            upload.commit()
        for key in uploads:
            data = b"".join(f"{key}{n}".encode() * (MIB // 8) for n in range(12))
            assert raw.read(key) == key[:4].encode().upper() + data[4:]

    def test_abort_after_the_head_leaves_nothing(self, store: Store, raw: RawObjects) -> None:
        """`Upload.abort` after `rewrite_head` leaves no object. A later `rewrite_head` raises a CafcatError."""
        upload = store.create("chunk.caf", rewrites_head=True)
        upload.write(b"first" * MIB)
        upload.rewrite_head(b"FIRST")
        upload.abort()
        assert raw.read("chunk.caf") is None
        with pytest.raises(CafcatError):
            upload.rewrite_head(b"again")
        put(store, "chunk.caf", b"second")
        assert raw.read("chunk.caf") == b"second"

    @pytest.mark.parametrize("ending", ["commit", "abort"])
    def test_an_upload_that_ended_takes_nothing_more(self, store: Store, raw: RawObjects, ending: str) -> None:
        """`write` and `commit` raise a CafcatError after `commit` or `abort` of an upload, and change nothing."""
        upload = store.create("chunk.caf")
        upload.write(b"all")
        getattr(upload, ending)()
        before = raw.read("chunk.caf")
        with pytest.raises(CafcatError):
            upload.write(b"more")
        with pytest.raises(CafcatError):
            upload.commit()
        assert raw.read("chunk.caf") == before

    def _needs_conditional_writes(self) -> None:
        if not self.never_replaces:
            pytest.skip("the server of this store ignores If-None-Match")

    def test_an_object_never_replaces_another(self, store: Store, raw: RawObjects) -> None:
        """Writing a second object with the same key raises Conflict, and the first object stays."""
        self._needs_conditional_writes()
        put(store, "chunk.caf", b"first")
        with pytest.raises(Conflict):
            put(store, "chunk.caf", b"second")
        assert raw.read("chunk.caf") == b"first"

    def test_a_key_taken_while_writing_is_not_replaced(self, store: Store, raw: RawObjects) -> None:
        """`Upload.commit` raises Conflict if another writer created an object with the key meanwhile."""
        self._needs_conditional_writes()
        upload = store.create("chunk.caf")
        upload.write(b"ours")
        raw.write("chunk.caf", b"theirs")
        with pytest.raises(Conflict):
            upload.commit()
        upload.abort()
        assert raw.read("chunk.caf") == b"theirs"
        assert list(store.list()) == [ObjectInfo("chunk.caf", 6)]

    def test_of_many_who_write_one_key_exactly_one_wins(self, store: Store, raw: RawObjects) -> None:
        """If several threads write an object with the same key, exactly one succeeds. The others get Conflict."""
        self._needs_conditional_writes()
        writers = 8
        ready = threading.Barrier(writers)
        outcomes: list[int | CafcatError] = []

        def write(n: int) -> None:
            upload: Upload | None = None
            try:
                ready.wait()
                upload = store.create("chunk.caf")
                upload.write(bytes([n]) * MIB)
                upload.commit()
                outcomes.append(n)
            except CafcatError as error:
                if upload is not None:
                    upload.abort()
                outcomes.append(error)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [outcome for outcome in outcomes if isinstance(outcome, int)]
        assert len(outcomes) == writers
        assert len(winners) == 1
        assert [error for error in outcomes if not isinstance(error, int | Conflict)] == []
        assert raw.read("chunk.caf") == bytes([winners[0]]) * MIB

    @pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 1), (3, 7), (9, 10), (0, 10), (10, 10)])
    def test_reads_give_exactly_the_span(self, store: Store, raw: RawObjects, start: int, end: int) -> None:
        """`Store.read` and `Store.stream` return exactly the requested bytes."""
        raw.write("chunk.caf", b"0123456789")
        assert store.read("chunk.caf", start, end) == b"0123456789"[start:end]
        assert b"".join(store.stream("chunk.caf", start, end)) == b"0123456789"[start:end]

    @pytest.mark.parametrize(("start", "end"), [(0, 11), (10, 11), (11, 12), (5, 10**15)])
    def test_an_object_that_ends_earlier_is_corrupt(
        self, store: Store, raw: RawObjects, start: int, end: int
    ) -> None:
        """Reading beyond the end of an object raises Corrupt with the object's location and size."""
        raw.write("chunk.caf", b"0123456789")
        with pytest.raises(Corrupt) as caught:
            store.read("chunk.caf", start, end)
        assert caught.value.chunk == store.locate("chunk.caf")
        assert caught.value.byte == 10
        with pytest.raises(Corrupt):
            list(store.stream("chunk.caf", start, end))

    @pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 4), (-3, -1)])
    def test_a_span_that_makes_no_sense_is_refused(
        self, store: Store, raw: RawObjects, start: int, end: int
    ) -> None:
        """`Store.read` raises InvalidInput for a range that begins below 0, or ends before it begins."""
        raw.write("chunk.caf", b"0123456789")
        with pytest.raises(InvalidInput):
            store.read("chunk.caf", start, end)

    def test_streams_come_in_blocks_of_at_most_1_mib(self, store: Store, raw: RawObjects) -> None:
        """`Store.stream` yields blocks of at most 1 MiB."""
        data = bytes(range(256)) * (5 * MIB // 256) + b"tail"
        raw.write("chunk.caf", data)
        blocks = list(store.stream("chunk.caf", 7, len(data)))
        assert b"".join(blocks) == data[7:]
        assert max(map(len, blocks)) <= MIB

    def test_missing_objects_are_not_found(self, store: Store, raw: RawObjects) -> None:
        """`Store.read`, `stream` and `stat` raise NotFound for a key without an object, such as a folder's."""
        raw.write("folder/chunk.caf", b"x")
        for key in ("chunk.caf", "folder", "folder/chunk", "folder/chunk.caf/below", "nowhere/chunk.caf"):
            with pytest.raises(NotFound):
                store.read(key, 0, 1)
            with pytest.raises(NotFound):
                list(store.stream(key, 0, 1))
            with pytest.raises(NotFound):
                store.stat(key)

    def test_delete_is_idempotent(self, store: Store, raw: RawObjects) -> None:
        """`Store.delete` removes one object, and does nothing if the object is missing."""
        raw.write("folder/chunk.caf", b"x")
        raw.write("folder/other.caf", b"y")
        store.delete("folder/chunk.caf")
        store.delete("folder/chunk.caf")
        store.delete("nowhere/chunk.caf")
        assert raw.read("folder/chunk.caf") is None
        assert raw.read("folder/other.caf") == b"y"

    def test_a_deleted_key_can_be_written_again(self, store: Store, raw: RawObjects) -> None:
        """An object can be written with the same key after `Store.delete`."""
        put(store, "chunk.caf", b"first")
        store.delete("chunk.caf")
        put(store, "chunk.caf", b"second")
        assert raw.read("chunk.caf") == b"second"

    def test_lists_are_in_byte_order_of_keys(self, store: Store, raw: RawObjects) -> None:
        """`Store.list` yields keys and sizes in byte order of the keys, unless the suite's `ordered` is False."""
        keys = ["a", "b/c", "b.d", "b0", "b/c.d/e", "é", "z/1", "z/10", "z/2", "Z"]
        for key in keys:
            raw.write(key, key.encode())
        expected = sorted(keys, key=str.encode)
        listed = list(store.list())
        if not self.ordered:
            listed.sort(key=lambda found: found.key.encode())
        assert listed == [ObjectInfo(key, len(key.encode())) for key in expected]

    def test_a_folder_of_keys_is_listed_alone(self, store: Store, raw: RawObjects) -> None:
        """`Store.list` with a folder yields only the keys below that folder."""
        for key in ("a", "b/c", "b/d/e", "b.d", "bc/x", "b0"):
            raw.write(key, b"x")
        assert [found.key for found in store.list("b/")] == ["b/c", "b/d/e"]
        assert [found.key for found in store.list("b/d/")] == ["b/d/e"]
        assert list(store.list("nowhere/")) == list(store.list("a/")) == []

    def test_an_object_opens_its_folder(self, store: Store, raw: RawObjects) -> None:
        """`StoredObject.parent_folder` returns a folder that lists and opens only the objects below it."""
        for key in ("folder/one", "folder/below/two", "other"):
            raw.write(key, b"data")
        folder = StoredObject(store, "folder/one").parent_folder()
        assert list(folder.files("")) == [("below/two", 4), ("one", 4)]
        assert list(folder.files("below/")) == [("below/two", 4)]
        assert folder.open("below/two").read_at(1, 3) == b"at"
        assert folder.name == store.locate("folder")
        with pytest.raises(NotFound):
            folder.open("other")
        whole = StoredObject(store, "other").parent_folder()
        assert [name for name, _ in whole.files("")][-1] == "other"
        assert store.locate("other") == f"{whole.name}/other"

    def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        """A store without objects can be listed."""
        assert list(store.list()) == []

    @pytest.mark.parametrize(
        "key",
        BAD_KEYS,
    )
    def test_keys_that_could_lead_elsewhere_are_refused(self, store: Store, key: str) -> None:
        """`create`, `read`, `stat`, `delete` and `locate` of a store raise InvalidInput for forbidden keys."""
        with pytest.raises(InvalidInput):
            store.create(key)
        with pytest.raises(InvalidInput):
            store.read(key, 0, 0)
        with pytest.raises(InvalidInput):
            store.stat(key)
        with pytest.raises(InvalidInput):
            store.delete(key)
        with pytest.raises(InvalidInput):
            store.locate(key)

    @pytest.mark.parametrize("key", ["plain", "with space", "ü/日本.caf", "%41?#&+", "a..b", "-n", "x" * 200])
    def test_unusual_keys_are_allowed(self, store: Store, raw: RawObjects, key: str) -> None:
        """Spaces, other alphabets, and characters with a meaning in URLs are allowed in keys."""
        put(store, key, b"data")
        assert raw.read(key) == b"data"
        assert store.read(key, 1, 3) == b"at"
        assert list(store.list()) == [ObjectInfo(key, 4)]

    def test_an_object_is_a_random_reader_for_formats(self, store: Store, raw: RawObjects) -> None:
        """A StoredObject has a name and a size, and reads ranges of bytes."""
        raw.write("chunk.caf", b"0123456789")
        archive = StoredObject(store, "chunk.caf")
        assert archive.size_bytes == 10
        assert archive.name == store.locate("chunk.caf")
        assert archive.read_at(2, 5) == b"234"

    def test_the_url_has_a_scheme(self, store: Store) -> None:
        """The URL of the store has a scheme, `is_remote` is a boolean, and `reads_in_flight` is at least 1."""
        assert "://" in store.url
        assert isinstance(store.is_remote, bool)
        assert store.reads_in_flight >= 1
