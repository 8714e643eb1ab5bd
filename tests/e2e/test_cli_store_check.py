"""`cafcat store check`, and the remembered checks of servers, with the real command."""

from collections.abc import Callable

import psycopg
import pytest

from tests.e2e.conftest import Cafcat
from tests.worlds.servers.s3_proxy import Fault, Request, S3Proxy
from tests.worlds.servers.s3_server import S3Server, needs

LACKS = {"ListMultipartUploads": Fault.NOT_IMPLEMENTED, "AbortMultipartUpload": Fault.NOT_ALLOWED}


@pytest.fixture
def through(cafcat: Cafcat, s3_proxy: S3Proxy, s3_server: S3Server, make_bucket: Callable[[], str]) -> Cafcat:
    """The command with its chunks in a bucket behind the proxy."""
    needs(s3_server, "usual_answers")
    cafcat.extra |= s3_proxy.environ() | {"CAFCAT_STORE": f"s3://{make_bucket()}/chunks"}
    return cafcat


def write(cafcat: Cafcat, name: str, content: bytes) -> None:
    path = cafcat.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def another_tag(request: Request) -> list[bytes]:
    return [b'ETag: "0123456789abcdef0123456789abcdef"'] if request.operation == "HeadObject" else []


def as_rclone(proxy: S3Proxy) -> None:
    proxy.further_headers = another_tag
    proxy.removed_headers = lambda request: (
        [b"x-amz-checksum-type", b"x-amz-checksum-crc64nvme", *[b"etag"] * (request.operation == "HeadObject")]
    )


def checks_in(url: str) -> object:
    with psycopg.connect(url) as connection:
        [(checks,)] = connection.execute("SELECT checks FROM stores").fetchall()
    return checks


def test_a_good_server_passes_and_nothing_is_left(through: Cafcat, s3_proxy: S3Proxy, s3_server: S3Server) -> None:
    store = through.extra["CAFCAT_STORE"]
    document = through("store", "check", store, "--json").document
    assert (document["store"], document["usable"], document["remembered"]) == (store, True, False)
    works = {finding["feature"]: finding["works"] for finding in document["findings"]}
    assert works["multipart upload"] is works["ranges"] is works["listing"] is works["clock"] is True
    assert works["list of uploads"] is works["abort of uploads"] is True
    bucket = store.split("/")[2]
    assert "Contents" not in s3_server.client().list_objects_v2(Bucket=bucket)
    assert "Uploads" not in s3_server.client().list_multipart_uploads(Bucket=bucket)


def test_table_shows_failed_checks_and_their_consequences(through: Cafcat, s3_proxy: S3Proxy) -> None:
    s3_proxy.faults = lambda request: LACKS.get(request.operation)
    lines = through("store", "check", through.extra["CAFCAT_STORE"]).lines
    [line] = [line for line in lines if line.startswith("list of uploads")]
    assert line.split()[3] == "no"
    assert "remove old ones on the server" in line


def test_a_missing_bucket_is_not_found(through: Cafcat) -> None:
    assert through("store", "check", "s3://cafcat-test-no-such-bucket", code=4).out == b""


def test_a_folder_can_be_checked(cafcat: Cafcat) -> None:
    document = cafcat("store", "check", "./folder", "--json").document
    assert document["usable"]
    assert {finding["works"] for finding in document["findings"]} == {True}
    assert not (cafcat.folder / "folder").exists()


def test_a_mistyped_name_is_refused(cafcat: Cafcat) -> None:
    assert "no store and no folder is called folder" in cafcat("store", "check", "folder", code=2).err
    assert "there is no folder" in cafcat("store", "check", "some/folder", code=2).err
    assert list(cafcat.folder.iterdir()) == []


def test_the_catalog_remembers_which_checks_a_server_fails(
    through: Cafcat, s3_proxy: S3Proxy, database_url: str
) -> None:
    """Two ingests by two processes each print one warning, and only the first object is read back.

    A successful check forgets the verdict.
    """
    through.extra["CAFCAT_DATABASE_URL"] = database_url
    as_rclone(s3_proxy)
    warnings = ""
    for turn in range(2):
        for number in range(4):
            write(through, f"folder{turn}/file{number}", b"x" * 1000)
        warnings += through("ingest", f"folder{turn}", "-j", "2").err
    read = [request.key for request in s3_proxy.requests if request.operation == "GetObject"]
    # The marker of the store is written first, and read back. No chunk is read back after that.
    assert [key for key in read if "/catalogs/" not in key] == []
    assert warnings.count("fails the check entity_tag") == 1
    assert checks_in(database_url) == {"failed": ["entity_tag"]}
    s3_proxy.further_headers, s3_proxy.removed_headers = (lambda _: ()), (lambda _: ())
    assert through("store", "check", through.extra["CAFCAT_STORE"], "--json").document["remembered"]
    assert checks_in(database_url) == {"failed": []}


def test_recover_prune_and_ingest_go_on_where_uploads_cannot_be_listed_or_aborted(
    through: Cafcat, s3_proxy: S3Proxy
) -> None:
    s3_proxy.faults = lambda request: LACKS.get(request.operation)
    write(through, "folder/file", b"x" * 1000)
    said = through("ingest", "folder").err + through("recover").err
    through("rm", "-r", "folder", "--yes")
    said += through("prune", "--grace", "0", "--yes").err
    write(through, "folder/other", b"y" * 1000)
    said += through("ingest", "folder").err
    assert through("cat", "folder/other").out == b"y" * 1000
    assert said.count("fails the check list_uploads") == 1
    assert s3_proxy.count("ListMultipartUploads") == 1


def test_prune_does_not_abort_completed_uploads(through: Cafcat, s3_proxy: S3Proxy) -> None:
    write(through, "folder/file", b"x" * 1000)
    through("ingest", "folder")
    through("rm", "-r", "folder", "--yes")
    s3_proxy.clear()
    through("prune", "--grace", "0", "--yes")
    assert s3_proxy.count("DeleteObject") > 0
    assert s3_proxy.count("AbortMultipartUpload") == 0
