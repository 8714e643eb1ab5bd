"""Headers of the tar stream are those of Python's tarfile."""

import io
import tarfile

from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.reading.tar_members import TarMembers

SECOND = 10**9
NAMES = st.one_of(
    st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=120),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=60),
    st.sampled_from(["x" * 100, "x" * 101, "é" * 50, "folder/" * 30 + "x", "\udcff"]),
)
SIZES = st.one_of(st.integers(0, 1 << 40), st.sampled_from([0, 8**11 - 1, 8**11]))
TIMES = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20),
    st.integers(0, 4 * 10**9).map(lambda seconds: seconds * SECOND),
    st.integers(0, 4 * 10**18),
    st.sampled_from([n * SECOND + more for n in (0, 10**9, 8**11) for more in (-SECOND, -1, 0, 1)]),
)


@given(NAMES, SIZES, TIMES)
@example("photos/a.jpg", 4096, 1_700_000_000_123_456_000)
@example("photos/a.jpg", 8**11, 1_700_000_000_000_000_000)
def test_a_header_is_that_of_tarfile(name: str, size_bytes: int, modified_ns: int | None) -> None:
    """Most headers are put together from constants, because tarfile takes twenty times as long."""
    info = tarfile.TarInfo(name)
    modified = modified_ns or 0
    info.size, (info.mtime, rest) = size_bytes, divmod(modified, SECOND)
    if rest:
        sign, absolute = "-" * (modified < 0), abs(modified)
        info.pax_headers = {"mtime": f"{sign}{absolute // SECOND}.{absolute % SECOND:09d}"}
    expected = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    assert TarMembers().header(name, size_bytes, modified_ns, 0) == expected


def test_tarfile_reads_the_members() -> None:
    members = TarMembers()
    files = [("a", b"", 1), ("b" * 150, b"bytes", None), ("c.txt", b"more", 1_700_000_000_123_456_000)]
    data = b""
    for name, content, modified_ns in files:
        data += members.header(name, len(content), modified_ns, 0) + content + members.trailer(len(content))
    data += b"".join(members.end())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = []
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found.append((member.name, content.read(), member.mtime))
    assert found == [("a", b"", 1e-9), ("b" * 150, b"bytes", 0), ("c.txt", b"more", 1_700_000_000.123456)]
    assert len(data) % tarfile.RECORDSIZE == 0
