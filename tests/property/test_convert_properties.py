"""Properties of conversions: converting through any formats and back gives the same bytes; damage is detected."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.errors import CafcatError
from cafcat.formats import registry as formats
from cafcat.formats.caf.format import CAF
from cafcat.testing.formats import BytesArchive, pack
from tests.property.test_chunkio_properties import FILES
from tests.worlds.archives.written_formats import WRITTEN

# Each example syncs several files.
few = settings(max_examples=40, suppress_health_check=list(HealthCheck))


@few
@given(files=FILES, way=st.lists(st.sampled_from(WRITTEN), max_size=3))
def test_conversion_through_any_formats_and_back_keeps_the_bytes(
    tmp_path: Path, files: list[tuple[str, bytes, int | None]], way: list[str]
) -> None:
    first = pack(CAF, files)[0]
    (tmp_path / "0").write_bytes(first)
    for n, name in enumerate([*way, "caf"]):
        report = cafcat.convert(tmp_path / f"{n}", tmp_path / f"{n + 1}", format=name, overwrite=True)
        assert (report.files, report.format) == (len(files), name)
    assert (tmp_path / f"{len(way) + 1}").read_bytes() == first


@few
@given(
    files=FILES.filter(bool),
    name=st.sampled_from(WRITTEN),
    where=st.floats(0, 1, exclude_max=True),
    cut=st.booleans(),
)
def test_damage_is_refused_or_changes_no_content(
    tmp_path: Path, files: list[tuple[str, bytes, int | None]], name: str, where: float, cut: bool
) -> None:
    """A flipped bit may be in unused bytes, in a name, or in a time."""
    data = bytearray(pack(formats.by_name(name), files)[0])
    at = int(where * len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= 1
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").unlink(missing_ok=True)
    try:
        cafcat.convert(tmp_path / "in", tmp_path / "out", format="caf")
    except CafcatError as error:
        assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test
        assert not (tmp_path / "out").exists()
    else:
        archive = BytesArchive((tmp_path / "out").read_bytes())
        reader = CAF.reader(archive)
        known = {content for _, content, _ in files}
        found = [b"".join(reader.open(entry)) for entry in reader.entries()]
        if name in ("caf", "chunkio"):
            assert known.issuperset(found)
    assert not list(tmp_path.glob(".cafcat*"))
