"""Translation of the errors of the libraries that access S3 servers."""

import obstore
import pytest
from botocore.exceptions import EndpointConnectionError
from obstore.store import MemoryStore

from cafcat.errors import AccessDenied, ServerFailed
from cafcat.remote.answers import quoted, unquoted
from cafcat.remote.errors import OutOfRange, answered, translated


@pytest.mark.parametrize("content", [b"", b"abc"])
def test_range_beyond_the_end_of_an_object_is_out_of_range(content: bytes) -> None:
    """Some servers answer such a range with 200 or 206. Then obstore raises an error of its own, without a code."""
    objects = MemoryStore()
    obstore.put(objects, "key", content)
    with pytest.raises(OutOfRange), translated("read", "memory://key"):
        obstore.get(objects, "key", options={"range": (5, 7)})


@pytest.mark.parametrize("etag", ['"abc"', 'W/"abc"'])
def test_entity_tags_are_quoted_as_the_server_shows_them(etag: str) -> None:
    assert quoted(unquoted(etag) or "") == etag


def test_a_server_that_does_not_answer_is_named() -> None:
    url = "http://127.0.0.1:1/bucket?list-type=2"
    with pytest.raises(ServerFailed) as failure, translated("list", "s3://bucket/x"):
        raise EndpointConnectionError(endpoint_url=url)
    assert failure.value.message == "cannot list s3://bucket/x: nobody answers at http://127.0.0.1:1"
    assert "AWS_ENDPOINT_URL" in (failure.value.hint or "")


def test_missing_credentials_of_google_are_denied_access() -> None:
    text = (
        "The operation lacked valid authentication credentials for path External GCP credential provider: "
        "AccessDenied: cannot use gs://bucket: no usable credentials were found: none; check GOOGLE_..."
    )
    with pytest.raises(AccessDenied) as refused, translated("read", "gs://bucket/x"):
        raise obstore.exceptions.UnauthenticatedError(text)
    assert refused.value.message == "cannot read gs://bucket/x: no usable credentials were found: none"
    assert "gcloud auth" in (refused.value.hint or "")


def test_a_refused_name_of_a_bucket_is_to_be_checked() -> None:
    failure = answered("InvalidBucketName", "The specified bucket is not valid.", "write", "s3://ab/x")
    assert failure.hint == "check the name of the bucket"
