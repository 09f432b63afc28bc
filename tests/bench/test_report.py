"""What a report says of samples, pairs and counts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report import Goal, Report, percentile

SAMPLES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


@given(SAMPLES, st.floats(0.1, 100))
def test_a_percentile_is_a_sample_with_enough_at_or_below_it(samples: list[float], percent: float) -> None:
    """Nearest rank: the least sample that `percent` of all do not exceed."""
    found = percentile(samples, percent)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= percent / 100 * len(samples) - 1e-6
    assert sum(sample < found for sample in samples) < percent / 100 * len(samples) + 1e-6


def test_known_percentiles() -> None:
    """The cases that off-by-one mistakes get wrong."""
    assert percentile([7.0], 99) == 7
    assert percentile(range(1, 101), 50) == 50
    assert percentile(range(1, 101), 99) == 99
    assert percentile(range(1, 101), 100) == 100
    assert percentile([1, 2, 3], 50) == 2


@pytest.mark.parametrize(
    ("goal", "inside", "outside", "text"),
    [(Goal(least=0.9), 0.9, 0.89, ">= 0.9"), (Goal(most=2.5), 2.5, 2.51, "<= 2.5")],
)
def test_a_goal_includes_its_bound(goal: Goal, inside: float, outside: float, text: str) -> None:
    """A goal is reached at its bound."""
    assert goal.reached(inside)
    assert not goal.reached(outside)
    assert str(goal) == text


def test_a_ratio_is_taken_within_each_pair() -> None:
    """The median of quotients, not the quotient of medians."""
    report = Report("made up", {"count": 3})
    report.ratio("slow machine in the middle", [(2, 1), (30, 10), (4, 1)], Goal(most=3))
    shown = report.as_json()["ratios"][0]
    assert (shown["median"], shown["min"], shown["max"], shown["pairs"]) == (3, 2, 4, 3)
    assert shown["goal"] == "<= 3"
    assert shown["reached"] is True


def test_a_missed_goal_is_no_fault_and_a_wrong_count_is() -> None:
    """Speed decides nothing; a byte too few does."""
    report = Report("made up", {})
    report.ratio("slow", [(10, 1)], Goal(most=2))
    report.tail("late", "ms", [1, 90], Goal(most=25))
    report.count("read", 5)
    report.count("right", 4, 4)
    assert report.right
    assert "not reached" in report.as_text()
    report.count("right as well", 3, 4)
    assert not report.right
    assert report.as_json()["right"] is False
    assert "3 of 4  WRONG" in report.as_text()


def test_text_and_json_name_the_same_things() -> None:
    """Every figure, ratio, count and note is in both; JSON is plain values."""
    report = Report("made up", {"rounds": 2}, version="9.9")
    report.figure("speed", "MiB/s", [1.0, 2.0], Goal(least=1))
    report.tail("wait", "ms", [3, 90], Goal(most=25))
    report.ratio("speed / floor", [(1, 2), (1, 4)])
    report.count("answers", 2, 2)
    report.note("a note")
    found = json.loads(json.dumps(report.as_json()))
    text = report.as_text()
    assert found["version"] == "9.9"
    assert found["settings"] == {"rounds": 2}
    assert found["machine"]["processors"] >= 1
    assert [(target["name"], target["value"], target["reached"]) for target in found["targets"]] == [
        ("speed", 1, True),
        ("wait, p99", 90, False),
    ]
    for kind in ("figures", "ratios", "targets", "counts"):
        assert found[kind]
        for entry in found[kind]:
            assert entry["name"] in text
    for note in found["notes"]:
        assert note in text


def test_markdown_has_what_is_compared_or_counted() -> None:
    """One row for each ratio, goal and count; rows of one width."""
    report = Report("made up", {})
    report.figure("only a figure", "ms", [1])
    report.ratio("speed / floor", [(1, 2), (3, 4)], Goal(least=0.5))
    report.tail("wait", "ms", [3, 90], Goal(most=25))
    report.count("answers", 2, 2)
    rows = report.as_markdown().splitlines()
    assert rows[2:] == [
        "| speed / floor | 0.5 (0.5 to 0.75, 2 pairs) | ≥ 0.5 × floor |",
        "| wait, p99 | 90.0 ms | ≤ 25 ms |",
        "| answers | 2 | 2 |",
    ]
    assert {row.count("|") for row in rows} == {4}
