"""Settings that are sent to other hosts: without the password of the database, unless the user wants that."""

from dataclasses import dataclass, replace
from typing import Self

from cafcat.catalog.database_url import has_secret
from cafcat.errors import InvalidInput
from cafcat.settings.settings import Settings

__all__ = ["SharedSettings"]


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """Settings for a worker on another host. They can be pickled.

    Attributes:
        settings: The settings, without the standby server for look-ups, which workers do not use. If the worker has
            to know the password of the database itself, `database_url` is None.
        needs_own_url: True if the worker takes the URL of the database from its own environment or cafcat.toml.
    """

    settings: Settings
    needs_own_url: bool

    @classmethod
    def of(cls, settings: Settings, *, with_password: bool) -> Self:
        """Return the settings for workers. They read the primary database, not a read replica.

        Args:
            settings: The settings of this process.
            with_password: True to send the URL of the database even if it has a password.
        """
        settings = replace(settings, read_database_url=None)  # it can have a password, too
        url = settings.database_url
        has_password = url is not None and has_secret(url)
        if has_password and not with_password:
            return cls(replace(settings, database_url=None), needs_own_url=True)
        return cls(settings, needs_own_url=False)

    def load(self) -> Settings:
        """Return the settings in the process of a worker.

        Raises:
            InvalidInput: The worker has to know the URL of the database itself, and has none.
        """
        if not self.needs_own_url:
            return self.settings
        url = Settings.load().database_url
        if url is None:
            hint = "set CAFCAT_DATABASE_URL for the workers, or give --share-password"
            raise InvalidInput("this worker has no URL of the database, and its password was not sent", hint=hint)
        return replace(self.settings, database_url=url)
