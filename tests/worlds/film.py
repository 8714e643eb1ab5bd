"""Makes a video of several megabytes."""

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SECONDS", "brightness_at", "write_film"]

ROUND_SECONDS = 25
SECONDS = 4 * ROUND_SECONDS
"""Length of the video. The same pictures are shown four times, because it takes time to make them."""
FRAMES_PER_SECOND = 2
WIDTH, HEIGHT = 480, 320
FLAT = WIDTH // 4


def brightness_at(second: int) -> int:
    """Return the brightness (luma) of the right quarter of all pictures of one second."""
    return 40 + 6 * (second % ROUND_SECONDS)


def write_film(file: Path) -> None:
    """Write a WebM file (VP8) of some 18 MB. Three quarters of each picture are noise, which needs many bytes."""
    av = pytest.importorskip("av")
    with av.open(str(file), "w", format="webm") as container:
        stream = container.add_stream("libvpx", rate=FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.bit_rate = 40_000_000
        stream.options = {"deadline": "realtime", "cpu-used": "8", "qmax": "8"}
        stream.gop_size = FRAMES_PER_SECOND
        pictures = [_picture(av, number) for number in range(ROUND_SECONDS * FRAMES_PER_SECOND)]
        packets = [packet for picture in [*pictures, None] for packet in stream.encode(picture)]
        contents = [(bytes(packet), packet.is_keyframe) for packet in packets]
        for number in range(SECONDS * FRAMES_PER_SECOND):
            packet = av.Packet(contents[number % len(contents)][0])
            packet.stream, packet.time_base = stream, Fraction(1, FRAMES_PER_SECOND)
            packet.pts = packet.dts = number
            packet.is_keyframe = contents[number % len(contents)][1]
            container.mux(packet)


def _picture(av: Any, number: int) -> Any:
    frame = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
    frame.pts, frame.time_base = number, Fraction(1, FRAMES_PER_SECOND)
    chance = random.Random(number)
    right = bytes([brightness_at(number // FRAMES_PER_SECOND)]) * FLAT
    luma, *colors = frame.planes
    padding = bytes(luma.line_size - WIDTH)
    luma.update(b"".join(chance.randbytes(WIDTH - FLAT) + right + padding for _ in range(HEIGHT)))
    for plane in colors:
        plane.update(b"\x80" * plane.buffer_size)
    return frame
