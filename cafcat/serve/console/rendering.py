"""Renders the templates of the console with Jinja, which escapes all values."""

import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from cafcat.errors import NotInstalled
from cafcat.serve.console import plots
from cafcat.serve.console.static import static_url
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["link", "render"]

_HIDDEN: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a template with its values.

    Args:
        template: Name of the file in `templates/`.
        values: Values by their names in the template.

    Raises:
        NotInstalled: The package Jinja2 is missing.
    """
    return _environment().get_template(template).render(values)


def link(page: str, **values: object) -> str:
    """Return the URL of a page of the console, relative to another one.

    Args:
        page: Name of the page.
        **values: Values of the query. Those that are None are left out.
    """
    given = {name: value for name, value in values.items() if value is not None}
    return f"{page}?{urlencode(given, safe='/')}" if given else page


@cache
def _environment() -> "Environment":
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise NotInstalled("the console needs Jinja2", hint=NotInstalled.remedy("serve")) from error
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(link=link, static_url=static_url, plots=plots)
    environment.filters.update(
        size=_size,
        number=_number,
        time=_time,
        day=_day,
        duration=_duration,
        percent=_percent,
        shown=_shown,
        shown_line=_shown_line,
        ns_time=_ns_time,
        plain=_plain,
        plain_number=_plain_number,
        shell=shlex.quote,
    )
    return environment


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else format_size(int(size_bytes))


def _number(value: int | None) -> str:
    """Return a number with spaces between groups of three digits that do not break."""
    return "-" if value is None else f"{value:,}".replace(",", "\u202f")


def _plain_number(value: int | float | Decimal) -> str:
    """Return a number of a table as `_number` does, with its decimals."""
    return f"{value:,}".replace(",", "\u202f")


def _plain(value: object) -> str:
    """Return any value of a table as text."""
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _time(time: datetime | None) -> str:
    return "-" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _ns_time(nanoseconds: int | None) -> str:
    """Return a modification time in nanoseconds since 1970 as `_time` does; "-" if it has no date."""
    if nanoseconds is None:
        return "-"
    try:
        return _time(_EPOCH + timedelta(microseconds=nanoseconds // 1000))
    except OverflowError:
        return "-"


def _day(day: date) -> str:
    return day.strftime("%Y-%m-%d")


def _duration(seconds: float | None) -> str:
    """Return a time span in its two largest units: "2 d 3 h", "4 min 5 s", "0.8 s"."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for n, (unit, length) in enumerate(_UNITS):
        if seconds >= length:
            name, below = (*_UNITS, ("s", 1))[n + 1]
            return f"{int(seconds // length)} {unit} {int(seconds % length // below)} {name}"
    return f"{seconds:.1f} s"


def _percent(part: float, whole: float) -> str:
    """Return a share of a whole, such as "12.3 %"; "-" if there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _shown(text: str) -> str:
    r"""Return a text with its control characters visible, as in "a\nb", also those that change the direction."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _shown_line(line: str) -> str:
    """Return a line of a file as `_shown` does, with its tabs."""
    return "\t".join(map(_shown, line.split("\t")))
