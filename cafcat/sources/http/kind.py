"""Files on web servers as a kind of source: only single files in a list, because web servers list no folders."""

from typing import Final

from cafcat.sources.kind import SourceContext, SourceKind, UrlFiles

__all__ = ["HTTP"]


class _HttpKind(SourceKind):
    """The kind of source of http:// and https:// URLs: single files in a list (--files-from), never folders."""

    def url_files(self, context: SourceContext) -> UrlFiles:  # noqa: ARG002 - web servers have no options
        """Return the opener of single files by http(s) URL."""
        from cafcat.sources.http.files import HttpFiles

        return HttpFiles()


HTTP: Final = _HttpKind()
