"""How Google Cloud Storage and Azure Blob Storage are reached.

Options that are not given come from the environment, in the variables of the vendors' own programs.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from cafcat.errors import InvalidInput

__all__ = ["ANONYMOUS", "AzureSettings", "CloudAccess"]

ANONYMOUS: Final = ("true", "false")
"""Values of the option `anonymous`."""
_ACCOUNT_HINT: Final = "set AZURE_STORAGE_ACCOUNT, or account in [stores.NAME] of cafcat.toml"


@dataclass(frozen=True, slots=True)
class CloudAccess:
    """Options of a connection to a bucket or container. No option holds a secret.

    Attributes:
        endpoint_url: URL of the server; None for the vendor's own server, or the one in the environment.
        account: Azure only: name of the storage account; None to use the environment.
        anonymous: "true" to send no credentials, for public buckets and for emulators without credentials.
    """

    endpoint_url: str | None = None
    account: str | None = None
    anonymous: str = "false"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the options that a table [stores.NAME] with checked values has. Its other keys are ignored."""
        return cls(**{name: options[name] for name in cls.__slots__ if name in options})

    @property
    def is_anonymous(self) -> bool:
        """True if requests have no credentials."""
        return self.anonymous == "true"


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Account, server and secrets of a storage account.

    Attributes:
        account: Name of the storage account.
        endpoint: URL of the server, without a slash at its end.
        key: Access key of the account in base64; None if there is none.
        sas: Shared access signature, a query without "?"; None if there is none.
    """

    account: str
    endpoint: str
    key: str | None
    sas: str | None

    def __repr__(self) -> str:
        return f"AzureSettings({self.account!r}, {self.endpoint!r})"  # the others are secrets

    @classmethod
    def of(cls, access: CloudAccess) -> Self:
        """Return the settings of an account from options and environment.

        The connection string counts only for the account that it names. If there are several secrets, the access
        key is used before the shared access signature.

        Raises:
            InvalidInput: No account is named.
        """
        connection = _connection_string()
        account = access.account or _first("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
        account = account or connection.get("accountname")
        if not account:
            raise InvalidInput("the name of the storage account is missing", hint=_ACCOUNT_HINT)
        if connection.get("accountname") not in (None, account):
            connection = {}
        protocol = connection.get("defaultendpointsprotocol", "https")
        suffix = connection.get("endpointsuffix", "core.windows.net")
        endpoint = access.endpoint_url or connection.get("blobendpoint") or f"{protocol}://{account}.blob.{suffix}"
        key = _first("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY") or connection.get("accountkey")
        sas = _first("AZURE_STORAGE_SAS_TOKEN") or connection.get("sharedaccesssignature")
        return cls(account, endpoint.rstrip("/"), key, sas.removeprefix("?") if sas else None)


def _first(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _connection_string() -> dict[str, str]:
    """Return the parts of AZURE_STORAGE_CONNECTION_STRING, with names in lower case."""
    parts = (part.partition("=") for part in os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";"))
    return {name.strip().lower(): value.strip() for name, _, value in parts if value}
