"""`python -m cafcat` is the command `cafcat`."""

from cafcat.cli.app import main

if __name__ == "__main__":
    main()
