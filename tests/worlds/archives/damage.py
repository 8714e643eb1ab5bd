"""Damage to files of a store."""

from pathlib import Path

__all__ = ["flip"]


def flip(path: Path, *at: int, bits: int = 0x10) -> None:
    """Flip these bits in each of these bytes."""
    with path.open("r+b") as file:
        for byte in at:
            file.seek(byte)
            [old] = file.read(1)
            file.seek(byte)
            file.write(bytes([old ^ bits]))
