"""The entry point: `cafcat`, and `python -m cafcat`."""

import os
import sys


def main() -> None:
    """Run the command line, and exit with its exit code; with 130 if Ctrl-C interrupts it.

    Ctrl-C is handled from the start, also during imports. Therefore this module imports almost nothing at its top.
    """
    try:
        _use_utf8()
        _open_standard_files()
        from cafcat.support.collecting import collect_rarely

        collect_rarely()  # before the imports, which make most objects of a short command
        from cafcat.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        text = '{"notice": "interrupted"}' if "--json" in sys.argv else "cafcat: interrupted"
        sys.stderr.write(f"{text}\n")
        code = 130
    _end(code)


def _end(code: int) -> None:
    """End the process without freeing each object, which would take a tenth of the time of `cafcat stat`.

    As at every end of Python, threads are waited for, and functions of `atexit` are called.
    """
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python reports the error
    try:
        sys.stderr.flush()
    finally:
        os._exit(code)  # the code tells the result, even if nothing can be written


def _use_utf8() -> None:
    """Start the program again in Python's UTF-8 mode if the locale has another encoding.

    The catalog has names of files in UTF-8. In another encoding, Python would decode their bytes to other names.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - no shell is needed


def _open_standard_files() -> None:
    """Open /dev/null in place of each standard stream that the caller closed, as `cafcat ls >&-` does.

    Otherwise the next opened file, such as a chunk, would get the file descriptor of the closed stream. Printed
    text could then be written into that file. Output to a closed stdout is an error: it is opened for reading only.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


if __name__ == "__main__":
    main()
