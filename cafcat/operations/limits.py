"""Sets and removes limits of requests and bytes, and pauses runs."""

from cafcat.catalog.limits import Amounts
from cafcat.errors import InvalidInput, NotFound
from cafcat.operations.stores.rows import store_row
from cafcat.session import Session
from cafcat.sources.names import url_without_user

__all__ = ["remove_limit", "set_limit", "set_paused"]


def set_limit(session: Session, given: str, amounts: Amounts) -> str:
    """Set a limit, and return its URL.

    Args:
        session: The session.
        given: URL of a bucket or server, or of a folder in it; or the name of a store.
        amounts: The limit.

    Raises:
        InvalidInput: No amount is given, one is below 1, or the URL is that of a folder of this machine.
        NotFound: The text is neither a URL nor the name of a store.
    """
    if all(amount is None for amount in amounts):
        hint = "give --requests, --in-flight or --bandwidth; `cafcat limits remove` removes a limit"
        raise InvalidInput("no limit is given", hint=hint)
    if any(amount is not None and amount < 1 for amount in amounts):
        raise InvalidInput("a limit must be at least 1")
    url = _url_of(session, given)
    session.catalog.limits.set(url, amounts)
    return url


def remove_limit(session: Session, given: str) -> str:
    """Remove a limit, and return its URL.

    Args:
        session: The session.
        given: URL of the limit, or the name of a store.

    Raises:
        NotFound: There is no limit for this URL.
    """
    url = _url_of(session, given)
    if not session.catalog.limits.remove(url):
        raise NotFound(f"there is no limit for {url}", hint="`cafcat limits list` shows the limits")
    return url


def set_paused(session: Session, run_id: int, *, is_paused: bool) -> None:
    """Pause a run, or let it go on. Raises NotFound if no running run has this number."""
    if not session.catalog.runs.set_paused(run_id, is_paused=is_paused):
        raise NotFound(f"no running ingest has the number {run_id}", hint="`cafcat runs` shows the ingests")


def _url_of(session: Session, given: str) -> str:
    """Return the URL of a limit: without user, password, and slashes at its end."""
    configured = session.settings.stores.get(given)
    url = given if "://" in given else (configured or store_row(session, given)).url
    url = url_without_user(url).rstrip("/")
    if url.startswith("file:") or url.endswith(":"):
        raise InvalidInput("a limit is for a store or source on a network", hint="write it as s3://BUCKET")
    return url
