"""The S3 store passes the suite of cafcat.testing.stores, on a real server."""

import pytest
from botocore.exceptions import ClientError

from cafcat.remote.access import S3Access
from cafcat.stores.s3.store import S3Store
from cafcat.testing.stores import StoreSuite
from tests.worlds.servers.s3_server import S3Server, needs, parameters

PREFIX = "some folder/chünks"


class BucketBeside:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client()
        self.bucket = bucket

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"{PREFIX}/{key}", Body=data)

    def read(self, key: str) -> bytes | None:
        try:
            return self.client.get_object(Bucket=self.bucket, Key=f"{PREFIX}/{key}")["Body"].read()
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:  # s3rver returns only the status
                return None
            raise


@pytest.mark.usefixtures("s3_environment")
class TestS3Store(StoreSuite):
    @pytest.fixture(autouse=True)
    def _server(self, s3_server: S3Server, request: pytest.FixtureRequest) -> None:
        if parameters(request).items() >= {"start": 0, "end": 1}.items():
            needs(s3_server, "first_byte")
        if request.function.__name__ == "test_of_many_who_write_one_key_exactly_one_wins":
            needs(s3_server, "atomic_conditional_writes")
        self.ordered = s3_server.has("list_order")
        self.never_replaces = s3_server.has("conditional_writes")

    @pytest.fixture
    def store(self, s3_bucket: str) -> S3Store:
        return S3Store(f"s3://{s3_bucket}/{PREFIX}", S3Access(), 60_000_000)

    @pytest.fixture
    def raw(self, s3_server: S3Server, s3_bucket: str) -> BucketBeside:
        return BucketBeside(s3_server, s3_bucket)
