"""The entry point: `cafcat`, and `python -m cafcat`."""

import os
import sys


def main() -> None:
    """Runs the command, and exits. Ctrl-C counts from the first moment, also while modules are still being
    imported: so this one, and the package's, import next to nothing."""
    try:
        _open_standard_files()
        from cafcat.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("cafcat: interrupted\n")
        code = 130
    sys.exit(code)


def _open_standard_files() -> None:
    """Where the caller closed one of them (`cafcat ls >&-`), /dev/null takes its place: else the next file that
    is opened, a chunk say, would get its number, and whatever is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


if __name__ == "__main__":
    main()
