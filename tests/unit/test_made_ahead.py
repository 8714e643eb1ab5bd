"""The items of an iterator, of which a thread makes the next one."""

from collections.abc import Iterator
from threading import Event, active_count, current_thread, main_thread
from time import sleep

import pytest

from cafcat.support.in_order import made_ahead

PATIENCE_SECONDS = 60


@pytest.mark.parametrize("at_once", [False, True])
def test_items_come_in_order(at_once: bool) -> None:
    assert list(made_ahead(iter(range(100)), at_once=at_once)) == list(range(100))
    assert list(made_ahead(iter([]), at_once=at_once)) == []


@pytest.mark.parametrize("at_once", [False, True])
def test_the_next_item_is_made_while_the_caller_uses_one(at_once: bool) -> None:
    made = [Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for n, event in enumerate(made):
            event.set()
            yield n

    found = made_ahead(items(), at_once=at_once)
    assert next(found) == 0
    assert made[1].wait(PATIENCE_SECONDS if at_once else 0) == at_once
    assert next(found) == 1
    assert made[2].wait(PATIENCE_SECONDS)


def test_a_single_item_starts_no_thread() -> None:
    threads = active_count()
    found = made_ahead(iter([current_thread()]))
    assert next(found) is main_thread()
    assert active_count() == threads


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise OSError("broken")

    found = made_ahead(items())
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="broken"):
        next(found)


def test_closing_waits_for_the_thread() -> None:
    begun, ended = Event(), Event()

    def items() -> Iterator[int]:
        yield from (0, 1)
        begun.set()
        sleep(0.1)
        ended.set()
        yield 2

    threads = active_count()
    found = made_ahead(items())
    assert [next(found), next(found)] == [0, 1]
    assert begun.wait(PATIENCE_SECONDS)
    found.close()
    assert ended.is_set()
    assert active_count() == threads
