"""Damage to files of a store."""

from pathlib import Path

__all__ = ["flip"]


def flip(path: Path, *at: int, bits: int = 0x10) -> None:
    """Turns these bits of each of these bytes around."""
    with path.open("r+b") as file:
        for byte in at:
            file.seek(byte)
            [old] = file.read(1)
            file.seek(byte)
            file.write(bytes([old ^ bits]))
