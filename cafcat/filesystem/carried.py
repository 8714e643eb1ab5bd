"""Settings as a text, which a pickled file system carries to another process."""

import json
from dataclasses import asdict
from pathlib import Path

from cafcat.settings.settings import NamedStore, Settings

__all__ = ["settings_of", "text_of"]


def text_of(settings: Settings) -> str:
    """Return settings as JSON. The text contains the URL of the database, with a password if the URL has one."""
    stores = {name: store._asdict() for name, store in settings.stores.items()}
    return json.dumps(asdict(settings) | {"home": str(settings.home), "stores": stores}, sort_keys=True)


def settings_of(text: str) -> Settings:
    """Return the settings that `text_of` made a text of."""
    fields = json.loads(text)
    stores = {name: NamedStore(**store) for name, store in fields["stores"].items()}
    return Settings(**fields | {"home": Path(fields["home"]), "stores": stores})
