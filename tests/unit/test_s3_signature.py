"""Signature V4: the examples of AWS's documentation, clocks, expiry, regions, and tampered requests."""

from datetime import UTC, datetime

import pytest

from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.keys import Key
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.signature import authenticate
from tests.worlds.aws_signing import EMPTY, Signer

# "Examples: Signature Calculations" and "Authenticating Requests: Using Query Parameters" of the S3 API Reference.
EXAMPLE_ID = "AKIAIOSFODNN7EXAMPLE"
EXAMPLE = Key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "")
EXAMPLE_TIME = datetime(2013, 5, 24, tzinfo=UTC).timestamp()
HOST = "examplebucket.s3.amazonaws.com"
SCOPE = "20130524/us-east-1/s3/aws4_request"


def request(target: str, headers: dict[str, str], time: float = EXAMPLE_TIME, method: str = "GET") -> S3Request:
    path, _, query = target.partition("?")
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return S3Request(method, path.encode(), query.encode(), raw, time)


def find(access_key_id: str) -> Key | None:
    return EXAMPLE if access_key_id == EXAMPLE_ID else None


def check(request: S3Request) -> Key | None:
    return authenticate(request, "us-east-1", find)


def code_of(request: S3Request) -> str:
    with pytest.raises(S3Error) as error:
        check(request)
    return error.value.code


def is_accepted(request: S3Request) -> bool:
    try:
        return check(request) is not None
    except S3Error:
        return False


@pytest.mark.parametrize(
    ("target", "headers", "signature"),
    [
        ("/test.txt", {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_signed_headers_of_the_documentation(target: str, headers: dict[str, str], signature: str) -> None:
    names = ";".join(sorted(["host", "x-amz-content-sha256", "x-amz-date", *headers]))
    authorization = f"AWS4-HMAC-SHA256 Credential={EXAMPLE_ID}/{SCOPE},SignedHeaders={names},Signature={signature}"
    given = {"host": HOST, "x-amz-content-sha256": EMPTY, "x-amz-date": "20130524T000000Z"} | headers
    assert check(request(target, given | {"authorization": authorization})) is EXAMPLE
    assert (
        Signer(EXAMPLE_ID, EXAMPLE.secret)
        .headers("GET", target, {"host": HOST} | headers, EXAMPLE_TIME)["Authorization"]
        .endswith(signature)
    )


PRESIGNED = (
    "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
    "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
    "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)


def test_the_presigned_url_of_the_documentation() -> None:
    assert check(request(PRESIGNED, {"host": HOST})) is EXAMPLE
    assert Signer(EXAMPLE_ID, EXAMPLE.secret).presigned("/test.txt", HOST, EXAMPLE_TIME, 86400) == PRESIGNED


def test_unsigned_requests_have_no_key() -> None:
    assert check(request("/test.txt?response-content-type=x", {"host": HOST})) is None


@pytest.mark.parametrize(
    ("seconds", "accepted"), [(0, True), (899, True), (-899, True), (901, False), (-901, False)]
)
def test_the_clock_may_differ_by_15_minutes(seconds: int, accepted: bool) -> None:
    signed = Signer(EXAMPLE_ID, EXAMPLE.secret).headers("GET", "/x", {"host": HOST}, EXAMPLE_TIME + seconds)
    if accepted:
        assert check(request("/x", signed)) is EXAMPLE
    else:
        assert code_of(request("/x", signed)) == "RequestTimeTooSkewed"


@pytest.mark.parametrize(
    ("age", "expires", "outcome"),
    [
        (0, 1, None),
        (3600, 3600, None),
        (3601, 3600, "AccessDenied"),
        (604_800, 604_800, None),
        (604_801, 604_800, "AccessDenied"),
        (0, 604_801, "AuthorizationQueryParametersError"),
        (0, "-1", "AuthorizationQueryParametersError"),
        (0, "1e3", "AuthorizationQueryParametersError"),
        (0, "٣", "AuthorizationQueryParametersError"),
        (-899, 60, None),
        (-901, 60, "AccessDenied"),
    ],
)
def test_presigned_urls_expire(age: int, expires: int | str, outcome: str | None) -> None:
    target = Signer(EXAMPLE_ID, EXAMPLE.secret).presigned("/x", HOST, EXAMPLE_TIME - age, expires)
    if outcome is None:
        assert check(request(target, {"host": HOST})) is EXAMPLE
    else:
        assert code_of(request(target, {"host": HOST})) == outcome


def test_every_changed_character_of_a_url_is_noticed() -> None:
    whole = Signer(EXAMPLE_ID, EXAMPLE.secret).presigned("/a/b?prefix=c&list-type=2", HOST, EXAMPLE_TIME)
    assert is_accepted(request(whole, {"host": HOST}))
    for place in range(1, len(whole)):
        changed = whole[:place] + ("0" if whole[place] != "0" else "1") + whole[place + 1 :]
        assert not is_accepted(request(changed, {"host": HOST})), changed


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"range": "bytes=0-10"}, "SignatureDoesNotMatch"),
        ({"host": "other"}, "SignatureDoesNotMatch"),
        ({"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, "SignatureDoesNotMatch"),
        ({"x-amz-date": "20130524T000001Z"}, "SignatureDoesNotMatch"),
        ({"x-amz-date": "20130525T000000Z"}, "AuthorizationHeaderMalformed"),
        ({"x-amz-date": "yesterday"}, "AccessDenied"),
        ({"x-amz-date": "20131324T000000Z"}, "AccessDenied"),
        ({"x-amz-meta-new": "x"}, "AccessDenied"),
        ({"x-amz-security-token": "x"}, "AccessDenied"),
        ({"authorization": "AWS AKIA:signature"}, "InvalidRequest"),
        ({"authorization": "Basic eDp5"}, "InvalidRequest"),
        ({"authorization": "AWS4-HMAC-SHA256"}, "AuthorizationHeaderMalformed"),
    ],
)
def test_changed_headers_are_refused(change: dict[str, str], code: str) -> None:
    headers = {"host": HOST, "range": "bytes=0-9"}
    signed = Signer(EXAMPLE_ID, EXAMPLE.secret).headers("GET", "/x", headers, EXAMPLE_TIME)
    lower = {name.lower(): value for name, value in signed.items()}
    assert code_of(request("/x", lower | change)) == code


def test_the_method_is_signed() -> None:
    signed = Signer(EXAMPLE_ID, EXAMPLE.secret).headers("GET", "/x", {"host": HOST}, EXAMPLE_TIME)
    assert code_of(request("/x", signed, method="HEAD")) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("signer", "code"),
    [
        (Signer(EXAMPLE_ID, "wrong"), "SignatureDoesNotMatch"),
        (Signer("AKIAOTHER", EXAMPLE.secret), "InvalidAccessKeyId"),
        (Signer(EXAMPLE_ID, EXAMPLE.secret, region="eu-west-1"), "AuthorizationHeaderMalformed"),
        (Signer(EXAMPLE_ID, EXAMPLE.secret, service="iam"), "AuthorizationHeaderMalformed"),
    ],
)
def test_other_signers_are_refused(signer: Signer, code: str) -> None:
    assert code_of(request("/x", signer.headers("GET", "/x", {"host": HOST}, EXAMPLE_TIME))) == code
    in_query = code.replace("AuthorizationHeaderMalformed", "AuthorizationQueryParametersError")
    assert code_of(request(signer.presigned("/x", HOST, EXAMPLE_TIME), {"host": HOST})) == in_query


def test_the_answer_names_the_right_region() -> None:
    signer = Signer(EXAMPLE_ID, EXAMPLE.secret, region="eu-west-1")
    with pytest.raises(S3Error, match="expecting 'us-east-1'") as error:
        check(request("/x", signer.headers("GET", "/x", {"host": HOST}, EXAMPLE_TIME)))
    assert error.value.details["Region"] == "us-east-1"


def test_two_signatures_are_refused() -> None:
    signer = Signer(EXAMPLE_ID, EXAMPLE.secret)
    headers = signer.headers("GET", "/x", {"host": HOST}, EXAMPLE_TIME)
    assert code_of(request(signer.presigned("/x", HOST, EXAMPLE_TIME), headers)) == "InvalidArgument"


def test_a_body_is_refused() -> None:
    signed = Signer(EXAMPLE_ID, EXAMPLE.secret).headers("GET", "/x", {"host": HOST}, EXAMPLE_TIME, "a" * 64)
    assert code_of(request("/x", signed)) == "XAmzContentSHA256Mismatch"
    unsigned = Signer(EXAMPLE_ID, EXAMPLE.secret).headers(
        "GET", "/x", {"host": HOST}, EXAMPLE_TIME, "UNSIGNED-PAYLOAD"
    )
    assert check(request("/x", unsigned)) is EXAMPLE


def test_the_host_must_be_signed() -> None:
    signed = Signer(EXAMPLE_ID, EXAMPLE.secret).headers("GET", "/x", {"range": "bytes=0-1"}, EXAMPLE_TIME)
    assert code_of(request("/x", signed | {"host": HOST})) == "AuthorizationHeaderMalformed"


@pytest.mark.parametrize("missing", ["X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Credential"])
def test_incomplete_queries_are_refused(missing: str) -> None:
    path, _, query = PRESIGNED.partition("?")
    rest = "&".join(part for part in query.split("&") if not part.startswith(missing))
    assert code_of(request(f"{path}?{rest}", {"host": HOST})) == "AuthorizationQueryParametersError"


def test_a_long_url_is_refused() -> None:
    with pytest.raises(S3Error, match="too long"):
        request("/" + "x" * 17_000, {"host": HOST})
