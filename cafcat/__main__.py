"""The entry point: `cafcat`, and `python -m cafcat`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command. Ctrl-C counts from the first moment, also while modules are still being imported."""
    try:
        from cafcat.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("cafcat: interrupted\n")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
