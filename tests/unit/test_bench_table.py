"""Calculation and format of the table of `make bench`, without measurements."""

import json
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import baseline, machine
from tests.bench.data import DataSet, concatenated, equal_files, small_files
from tests.bench.table import NO_TARGET, Row, at_least, at_most, better_of, figure, markdown, number, pair_ratios
from tests.bench.timing import in_turn, run

SLOW = Row("packing.small -j1", "ingest (a)", "tar", at_most(0.9), [1.0, 0.5, 2.0], "1 s")
FAST = Row("finding.read_many", "read_many", "single", at_least(20), [61.25, 50, 70])
CONDITIONS = {"files": 10, "scale": 0.1, "CPUs": 2}


def test_table_is_markdown_with_median_range_and_met_targets() -> None:
    missing = Row("peers.borg", "ingest (a)", "tar - | dd", at_most(1), missing="missing: apt-get install borg")
    assert markdown([SLOW, FAST, missing]).splitlines() == [
        "| work | peer | target | ratio | absolute | met |",
        "| --- | --- | --- | --- | --- | --- |",
        "| ingest (a) | tar | ≤ 0.9 x | 1.00 [0.50-2.00] | 1 s | no |",
        "| read_many | single | ≥ 20 x | 61.2 [50.0-70.0] | — | yes |",
        "| ingest (a) | tar - \\| dd | ≤ 1 x | missing: apt-get install borg | — | — |",
    ]


def test_row_without_a_target_has_no_result() -> None:
    assert Row("growth", "growth", "first", NO_TARGET, [1.0]).cells()[2:] == ("—", "1.00 [1.00-1.00]", "—", "—")


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0.00"), (0.0481, "0.048"), (0.52, "0.52"), (61.24, "61.2"), (5400.4, "5,400")]
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_figure_has_a_unit() -> None:
    assert figure([1.3, 1.1, 1.2], "s") == "1.20 s [1.10-1.30]"


def test_ratios_are_computed_by_round() -> None:
    """The ratio of medians would count noise that slows both sides in one round."""
    assert pair_ratios([2.0, 20.0, 3.0], [1.0, 10.0, 6.0]) == [2.0, 2.0, 0.5]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        pair_ratios([1.0], [1.0, 2.0])


def test_the_base_is_the_peer_with_the_lower_median() -> None:
    assert better_of({"a": [1.0, 9.0, 9.0], "b": [5.0, 5.0, 5.0]}) == "b"


def test_ways_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def way(name: str) -> float:
        order.append(name)
        return float(len(order))

    assert in_turn({"a": lambda: way("a"), "b": lambda: way("b")}, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert order == ["a", "b"] * 3


def test_a_command_that_fails_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="sh ended with 3: no such thing"):
        run("sh", "-c", "echo no such thing >&2; exit 3")


def stored(tmp_path: Path, *rows: Row) -> Path:
    file = tmp_path / "baseline.json"
    baseline.save(file, rows, CONDITIONS)
    return file


def test_warning_for_ratios_that_are_worse_by_a_fifth(tmp_path: Path) -> None:
    before = baseline.load(stored(tmp_path, SLOW, FAST))
    assert before == {"conditions": CONDITIONS, "ratios": {"finding.read_many": 61.25, "packing.small -j1": 1.0}}
    worse = [SLOW._replace(ratios=[1.25]), FAST._replace(ratios=[49])]
    assert baseline.warnings(worse, before, CONDITIONS) == [
        "WORSE by 25%: packing.small -j1 (ingest (a)) is 1.25 x tar, where the baseline has 1.00 x.",
        "WORSE by 25%: finding.read_many (read_many) is 49.0 x single, where the baseline has 61.2 x.",
    ]


def test_no_warning_for_better_or_similar_ratios(tmp_path: Path) -> None:
    before = baseline.load(stored(tmp_path, SLOW, FAST))
    others = [(1.19, 52.0), (0.1, 600.0)]
    for slow, fast in others:
        rows = [SLOW._replace(ratios=[slow]), FAST._replace(ratios=[fast])]
        assert baseline.warnings(rows, before, CONDITIONS) == []


def test_warning_for_rows_without_a_baseline(tmp_path: Path) -> None:
    before = baseline.load(stored(tmp_path, SLOW))
    warned = baseline.warnings([SLOW, FAST], before, CONDITIONS | {"files": 20})
    assert warned == [
        "The baseline was measured with files 10, scale 0.1, CPUs 2, this with files 20, scale 0.1, CPUs 2.",
        "finding.read_many is not in the baseline: it cannot be compared.",
    ]
    assert baseline.warnings([SLOW], baseline.load(tmp_path / "none.json"), CONDITIONS) == [
        "packing.small -j1 is not in the baseline: it cannot be compared."
    ]


def test_a_part_of_a_run_replaces_a_part_of_the_baseline(tmp_path: Path) -> None:
    file = stored(tmp_path, SLOW, FAST)
    baseline.save(file, [SLOW._replace(ratios=[3.0]), FAST._replace(ratios=[])], CONDITIONS)
    assert baseline.load(file)["ratios"] == {"finding.read_many": 61.25, "packing.small -j1": 3.0}
    baseline.save(file, [SLOW], CONDITIONS | {"files": 20})
    assert baseline.load(file)["ratios"] == {"packing.small -j1": 1.0}


def test_the_stored_baseline_is_of_quick_runs() -> None:
    document = json.loads(baseline.FILE.read_text())
    options = bench.parsed(["--quick"])
    assert {name: document["conditions"][name] for name in bench.CONDITIONS} == {
        name: getattr(options, name) for name in bench.CONDITIONS
    }
    names = bench.chosen(options.only)
    assert all(any(row.startswith(name) for name in names) for row in document["ratios"])


def test_rows_are_chosen_by_subject_or_name() -> None:
    assert list(bench.chosen(["packing.small", "verifying"])) == [
        "packing.small",
        "verifying.verify",
        "verifying.verify_large",
        "verifying.extract",
    ]
    assert len(bench.chosen(None)) >= 10
    with pytest.raises(SystemExit, match=r"there is no pack: packing\.small,"):
        bench.chosen(["pack"])


def test_the_command_is_shown_without_folders_of_this_machine() -> None:
    shown = machine.shown_command(["--rounds", "2", "--folder", "/disk 1", "--folder=/disk", "--only", "commit"])
    assert shown == "python -m tests.bench --rounds 2 --only commit"


def test_a_baseline_is_not_made_of_another_kind_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parsed(["--save-baseline"])
    assert "--save-baseline goes with --quick" in capsys.readouterr().err


def content(data: DataSet) -> dict[str, bytes]:
    return {str(path.relative_to(data.folder)): path.read_bytes() for path in data.paths()}


def test_data_sets_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    for make in (lambda folder: small_files(folder, 7, 3), lambda folder: equal_files(folder, 3, 200_000)):
        first, second = make(tmp_path / "first"), make(tmp_path / "second")
        assert content(first) == content(second)
        assert first.size_bytes == sum(map(len, content(first).values()))
        assert len(set(content(first).values())) == first.files == len(content(first))
        assert concatenated(first, tmp_path / "joined").read_bytes() == b"".join(content(first).values())
        first.remove(), second.remove()
