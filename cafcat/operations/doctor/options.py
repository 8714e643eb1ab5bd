"""The arguments and flags of the operation `doctor`."""

from dataclasses import dataclass
from typing import Annotated

from cafcat.support.parameters import Flag

__all__ = ["DoctorOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Check the installation, the settings, the database, the stores and the catalog. The checks change nothing.

    Attributes:
        timeout_seconds: How long one check may take. A check that takes longer is an error, and is left alone.
    """

    timeout_seconds: Annotated[int, Flag("--timeout", "How long one check may take, in seconds.", "N", least=1)] = (
        15
    )
