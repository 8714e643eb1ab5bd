"""The random order of a PackedStream: the same for a seed and an epoch in every version of Python."""

from random import Random

from cafcat.datasets.order import Window, block_order


def drawn(seed: str) -> list[int]:
    window = Window([1] * 12, Random(seed), most_bytes=8, most_samples=8)
    order = []
    for block in (range(5), range(5, 10), range(10, 12)):
        window.add(block)
        while window.is_full:
            order.append(window.draw())
    return order + [window.draw() for _ in window.held[:]]


def test_the_order_is_the_same_in_every_version_of_python() -> None:
    assert list(block_order(10, 7, 3, shuffle=True)) == [0, 6, 5, 4, 2, 8, 7, 9, 1, 3]
    assert drawn("7 3") == [3, 1, 9, 7, 8, 2, 11, 6, 4, 5, 0, 10]


def test_blocks_are_in_every_place_about_equally_often() -> None:
    """Of 6,000 epochs, each block is expected 1,000 times in each place; six deviations are 173."""
    counts = [[0] * 6 for _ in range(6)]
    for epoch in range(6000):
        for place, block in enumerate(block_order(6, 0, epoch, shuffle=True)):
            counts[place][block] += 1
    assert all(827 < count < 1173 for places in counts for count in places)


def test_samples_of_a_window_are_drawn_about_equally_often() -> None:
    counts = [0] * 5
    for seed in range(5000):
        window = Window([1] * 5, Random(seed), most_bytes=1, most_samples=1)
        window.add(range(5))
        counts[window.draw()] += 1
    assert all(830 < count < 1170 for count in counts)
