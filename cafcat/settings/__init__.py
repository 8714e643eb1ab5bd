"""The settings of a repository, from flags, environment variables, `cafcat.toml` and defaults."""

from cafcat.settings.settings import Settings, default_home

__all__ = ["Settings", "default_home"]
