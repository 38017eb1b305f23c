"""Odd and broken configurations: never a traceback, never one that is refused and yet writes
params.yaml, never one that is accepted and then refused by a stage for a reason known before.
"""

from collections import Counter

import pytest

from tests.support.fuzz import outcomes


@pytest.mark.parametrize("cases", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_every_configuration_is_refused_in_one_line_or_can_be_run(tmp_path, cases):
    (tmp_path / "project").mkdir()
    seen: Counter[tuple[str, str]] = Counter()
    wrong = []
    for kind, given, outcome in outcomes(cases, tmp_path / "project"):
        seen[kind, outcome] += 1
        if outcome not in ("refused", "accepted"):
            wrong.append(f"{kind}: {outcome}: {str(given)[:500]}")
    assert wrong == []
    assert sum(seen.values()) == cases
    assert seen["setting", "refused"] > cases / 37.5 and seen["setting", "accepted"] > cases / 7.5
    if cases == 1500:  # it looks on both sides
        for kind in ("override", "file of conf/", "params.yaml"):
            assert seen[kind, "refused"] > 40 and seen[kind, "accepted"] > 1, kind
