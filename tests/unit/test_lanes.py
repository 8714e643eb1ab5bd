"""The combinations of parameters that `make test` runs."""

import itertools

from tests.worlds.lanes import covering_set


def test_every_value_of_every_parameter_occurs() -> None:
    sizes = {"format": 4, "place": 2, "way": 7}
    values = [[(name, number) for number in range(size)] for name, size in sizes.items()]
    combinations = [frozenset(combination) for combination in itertools.product(*values)]
    chosen = covering_set(combinations)
    assert len(chosen) == max(sizes.values())
    assert set().union(*(combinations[number] for number in chosen)) == set().union(*combinations)


def test_values_in_few_combinations_are_covered() -> None:
    pairs = [(0, 0), (1, 0), (1, 1)]
    assert covering_set([frozenset({("a", a), ("b", b)}) for a, b in pairs]) == {0, 2}
