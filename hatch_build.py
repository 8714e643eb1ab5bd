"""Compiles the native part when the package is built or installed. The build tool hatchling calls this file.

The environment variable CAFCAT_BUILD chooses the compiler:

* not set: cc, or the compiler in CC. Without a compiler, or if it fails, the package is built without the library.
* zig: the compiler of the package ziglang, which is installed for the build. CAFCAT_BUILD_TARGET is the processor
  of the wheel, x86_64 or aarch64 (on Linux); default: that of this machine. Errors end the build.
* none: no library.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE = "cafcat/native"
_FILE = f"{_HERE}/libcafcat.bin"
_FLAGS = (
    "-std=gnu11",
    "-D_FILE_OFFSET_BITS=64",
    "-D_TIME_BITS=64",
    "-O2",
    "-fPIC",
    "-shared",
    "-pthread",
    "-s",
    "-fvisibility=hidden",
)
_GLIBC = "2.17"
"""Oldest C library of Linux on which wheels made by zig work: that of manylinux2014."""


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the library to a wheel, and to the source folder for an editable installation."""

    _folder: TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return the packages that this build needs."""
        return ["ziglang"] if os.environ.get("CAFCAT_BUILD") == "zig" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library before the files of the package are collected.

        A wheel may be for another processor, so its library is never in the source folder.
        """
        self._folder = TemporaryDirectory()
        is_editable = version == "editable"
        library = Path(self.root if is_editable else self._folder.name) / _FILE
        platform_tag = self._build(library)
        if platform_tag is None:
            return
        if not is_editable:
            build_data["force_include"][str(library)] = _FILE
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary folder."""
        if self._folder is not None:
            self._folder.cleanup()

    def _build(self, library: Path) -> str | None:
        """Compile the library, and return the platform for the tag of the wheel; None if there is no library."""
        way = os.environ.get("CAFCAT_BUILD", "")
        if way not in ("", "zig", "none"):
            raise ValueError(f"CAFCAT_BUILD is {way!r}; it can be zig or none")
        if way == "none":
            return None
        if way == "zig":
            target = os.environ.get("CAFCAT_BUILD_TARGET", platform.machine())
            zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{target}-linux-gnu.{_GLIBC}"]
            self._compile(zig, library)
            return f"manylinux_{_GLIBC.replace('.', '_')}_{target}"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if os.name != "posix" or shutil.which(compiler[0]) is None:
            return None
        try:
            self._compile(compiler, library)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"cafcat is built without its native part: {error}")
            return None
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def _compile(self, compiler: list[str], library: Path) -> None:
        """Compile all sources into a new file, which then replaces the old one: a running process may use that."""
        sources = sorted(str(path) for path in (Path(self.root) / _HERE / "source").glob("*.c"))
        library.parent.mkdir(parents=True, exist_ok=True)
        new = library.with_suffix(".new")
        try:
            subprocess.run([*compiler, *_FLAGS, "-o", str(new), *sources], check=True)
            new.chmod(0o644)
            new.replace(library)
        finally:
            new.unlink(missing_ok=True)
