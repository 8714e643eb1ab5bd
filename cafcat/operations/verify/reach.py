"""Finds out whether an object could not be checked because its whole store is out of reach."""

from cafcat.catalog.chunks.verification import CheckTarget
from cafcat.errors import CafcatError, Unavailable
from cafcat.operations.reachable_stores import why_another
from cafcat.session import Session
from cafcat.stores.presence import elsewhere

__all__ = ["why_out_of_reach"]


def why_out_of_reach(session: Session, target: CheckTarget) -> CafcatError | None:
    """Return the error of a store that does not answer or is not where its URL points; else None.

    Args:
        session: The session.
        target: An object of the store that is missing, or could not be read.
    """
    try:
        why = why_another(session.stores[target.store], session.catalog, target.object_key)
    except Unavailable as error:
        return error
    except CafcatError:
        return None  # the store answers: a user who may read need not have the right to list
    return None if why is None else elsewhere(target.store, why)
