"""Metrics in the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

__all__ = ["Family", "Sample", "exposition", "single"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Sample(NamedTuple):
    """One number of a metric.

    Attributes:
        value: The number.
        labels: Values of the labels, by name.
        suffix: Appended to the name of the metric: "_sum" and "_count" of a summary; else "".
    """

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Family(NamedTuple):
    """A metric with all its samples.

    Attributes:
        name: Name of the metric, without "cafcat_". That of a counter ends with "_total", and a unit comes before.
        kind: Type of the metric.
        help: Meaning of the metric, in one sentence.
        samples: The numbers. A metric without samples is left out.
    """

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: tuple[Sample, ...]


def single(name: str, kind: Literal["counter", "gauge"], help: str, value: float | None) -> Family:
    """Return a metric without labels. It has no sample if the value is None."""
    return Family(name, kind, help, () if value is None else (Sample(value),))


def exposition(families: Iterable[Family]) -> str:
    """Return the text of metrics. Every name begins with "cafcat_"."""
    lines = []
    for family in families:
        if family.samples:
            name = f"cafcat_{family.name}"
            lines.append(f"# HELP {name} {family.help.translate(_HELP_ESCAPES)}")
            lines.append(f"# TYPE {name} {family.kind}")
            lines += (
                f"{name}{sample.suffix}{_labels(sample.labels)} {sample.value!r}" for sample in family.samples
            )
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"
