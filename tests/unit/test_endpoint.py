"""The URL of the S3 server is that of a client of boto3, which most readers need not create."""

import os
from pathlib import Path
from typing import Any

import boto3
import pytest

from cafcat.errors import InvalidInput
from cafcat.remote.access import S3Access
from cafcat.remote.connection import S3Connection
from cafcat.remote.endpoint import known_endpoint
from tests.worlds.servers.s3_server import DEVELOPERS_OWN

ONE, TWO, THREE = (f"http://127.0.0.1:{port}" for port in (9001, 9002, 9003))
PROFILE = f"[default]\nendpoint_url = {THREE}\n"
SERVICES = f"[default]\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = {THREE}\n"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """AWS' own configuration: keys, the file `config` in the temporary folder, and nothing else."""
    for name in (*DEVELOPERS_OWN, "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return monkeypatch


def host_and_region(connection: S3Connection) -> tuple[str | None, str | None]:
    """Return the endpoint that obstore has, None for AWS' own, and its region."""
    config: dict[str, Any] = dict(connection.objects.config)
    return config.get("endpoint"), config.get("region")


@pytest.mark.parametrize("region", ["eu-central-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1"])
def test_the_endpoint_of_aws_is_that_of_a_client(aws: pytest.MonkeyPatch, region: str) -> None:
    check(S3Access(region=region))


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({"AWS_ENDPOINT_URL": ONE, "AWS_ENDPOINT_URL_S3": TWO}, PROFILE),
        ({"AWS_ENDPOINT_URL": ONE, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, PROFILE),
        ({"AWS_ENDPOINT_URL": f"{ONE}/"}, ""),
        ({"AWS_ENDPOINT_URL": "https://Storage.example.com:65000/path"}, ""),
        ({}, PROFILE),
        ({}, SERVICES),
    ],
)
def test_the_configured_endpoint_is_that_of_a_client(
    aws: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], config: str
) -> None:
    (tmp_path / "config").write_text(config)
    for name, value in environment.items():
        aws.setenv(name, value)
    check(S3Access(region="eu-central-1"))


def check(access: S3Access) -> None:
    """Compare the endpoint of obstore's client with that of a connection that already has a client of boto3."""
    other = S3Connection("bucket", access)
    expected = other.client.meta.endpoint_url
    assert known_endpoint(boto3.Session(), access) in (None, expected)
    assert host_and_region(S3Connection("bucket", access)) == host_and_region(other)


@pytest.mark.parametrize(
    ("access", "environment", "config"),
    [
        (S3Access(), {"AWS_ENDPOINT_URL": ONE}, ""),
        (S3Access(), {"AWS_ENDPOINT_URL_S3": ONE, "AWS_ENDPOINT_URL": TWO}, PROFILE),
        (S3Access(endpoint_url=ONE), {"AWS_ENDPOINT_URL_S3": TWO}, PROFILE),
        (S3Access(), {}, "[default]\noutput = json\nregion = ap-southeast-2\n"),
    ],
)
def test_a_reader_creates_no_client(
    aws: pytest.MonkeyPatch, tmp_path: Path, access: S3Access, environment: dict[str, str], config: str
) -> None:
    (tmp_path / "config").write_text(config)
    for name, value in environment.items():
        aws.setenv(name, value)
    connection = S3Connection("bucket", access)
    assert host_and_region(connection)[0] == (None if "ap-southeast-2" in config else ONE)
    assert connection._client is None


@pytest.mark.parametrize(
    ("url", "region"),
    [("garbage", None), ("http://user:word@127.0.0.1:9", None), ("http://-a.example", None), (ONE, "no region!")],
)
def test_values_that_a_client_refuses_are_refused(aws: pytest.MonkeyPatch, url: str, region: str | None) -> None:
    with pytest.raises(InvalidInput):
        _ = S3Connection("bucket", S3Access(endpoint_url=url, region=region)).objects
