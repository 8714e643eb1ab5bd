"""Spans of OpenTelemetry, for single reads and commits. They are off by default: then a span does nothing.

`enable` loads the library `opentelemetry`; nothing else does. A span has numbers of bytes, UUIDs of chunks and URLs
of stores, but neither names nor contents of files.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

from cafcat.errors import InvalidInput, NotInstalled

__all__ = ["Span", "begin", "enable", "flush"]

_EXPORTER_VARIABLE: Final = "OTEL_TRACES_EXPORTER"
_EXPORTER_VARIABLES: Final = (
    _EXPORTER_VARIABLE,
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)
Value = str | int | float | bool


class Span:
    """A part of the work, such as one commit, with its begin and end. This base class records nothing.

    In a `with` statement, it is the parent of the spans that begin inside. It ends with the statement; an exception
    marks it as failed.
    """

    def child(self, name: str, **attributes: Value) -> "Span":  # noqa: ARG002 - this class records nothing
        """Begin a span inside this one, and return it."""
        return self

    def set(self, **attributes: Value) -> None:
        """Add attributes."""

    def end(self) -> None:
        """End the span. Idempotent."""

    def fail(self, error: BaseException | None = None) -> None:
        """End the span as a failed one. Idempotent.

        Args:
            error: The reason, of which only the class is recorded: its message may have the path of a file.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


_NOTHING: Final = Span()


class _Recorded(Span):
    """A span that OpenTelemetry records."""

    def __init__(self, name: str, attributes: Mapping[str, Value], parent: Any = None) -> None:
        from opentelemetry.trace import set_span_in_context

        context = None if parent is None else set_span_in_context(parent)
        self._span = _tracer.start_span(f"cafcat.{name}", context, attributes=_named(attributes))
        self._current: AbstractContextManager[Any] | None = None

    def child(self, name: str, **attributes: Value) -> Span:
        return _Recorded(name, attributes, self._span)

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(_named(attributes))

    def end(self) -> None:
        if self._span.is_recording():
            self._span.end()

    def fail(self, error: BaseException | None = None) -> None:
        if self._span.is_recording():
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR))
            self._span.set_attributes({} if error is None else {"error.type": type(error).__name__})
        self.end()

    def __enter__(self) -> Self:
        from opentelemetry.trace import use_span

        self._current = use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._current is not None  # noqa: S101 - `__enter__` came before
        self._current.__exit__(kind, error, trace)
        if error is None:
            self.end()
        else:
            self.fail(error)


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"cafcat.{name}": value for name, value in attributes.items()}


_tracer: Any = None


def enable() -> None:
    """Record spans from now on, in this process. Idempotent.

    They go to the TracerProvider of the program. If the program has set none, and the environment names an exporter
    (OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT), one with that exporter is set. With the exporter "none",
    none is set, and the spans are dropped.

    Raises:
        InvalidInput: The environment names an unknown exporter.
        NotInstalled: The library is missing.
    """
    global _tracer  # noqa: PLW0603 - one switch for the whole process
    if _tracer is not None:
        return
    try:
        from opentelemetry import trace
    except ImportError as error:
        hint = f"{NotInstalled.remedy('otel')}, or leave the setting tracing out"
        raise NotInstalled("traces need OpenTelemetry, which is not installed", hint=hint) from error
    is_unset = isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    names_exporter = any(os.environ.get(name) for name in _EXPORTER_VARIABLES)
    if is_unset and names_exporter and os.environ.get(_EXPORTER_VARIABLE) != "none":
        trace.set_tracer_provider(_provider())
    from cafcat import __version__

    _tracer = trace.get_tracer("cafcat", __version__)


def _provider() -> Any:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override this name.
    defaults = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "cafcat"}
    provider = TracerProvider(resource=Resource.create(defaults))
    provider.add_span_processor(BatchSpanProcessor(_exporter()))
    return provider


def _exporter() -> Any:
    """Return the exporter that the environment names: OTLP over HTTP, or "console", which prints on stderr."""
    name = os.environ.get(_EXPORTER_VARIABLE) or "otlp"
    if name not in ("console", "otlp"):
        hint = f"{_EXPORTER_VARIABLE} can be console, none or otlp"
        raise InvalidInput(f"there is no exporter of traces {name!r}", hint=hint)
    if name == "console":
        import sys

        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        hint = NotInstalled.remedy("otel")
        raise NotInstalled("the exporter of OpenTelemetry (OTLP over HTTP) is not installed", hint=hint) from error
    return OTLPSpanExporter()


def flush() -> None:
    """Send the spans that wait, if spans are on and the TracerProvider is that of OpenTelemetry's SDK."""
    if _tracer is None:
        return
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if hasattr(provider, "force_flush"):
        provider.force_flush()


def begin(name: str, **attributes: Value) -> Span:
    """Begin a span, and return it. It ends with its `end`, or as a `with` statement ends.

    Args:
        name: Name of the span, without "cafcat.".
        attributes: Attributes by name, without "cafcat.".
    """
    return _NOTHING if _tracer is None else _Recorded(name, attributes)
