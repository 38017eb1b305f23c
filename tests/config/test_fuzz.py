"""Odd and broken configurations: never a traceback, never one that is refused and yet writes
params.yaml, never one that is accepted and then refused by a stage for a reason known before.
"""

from collections import Counter

from tests.support.fuzz import outcomes

CASES = 1500


def test_every_configuration_is_refused_in_one_line_or_can_be_run(tmp_path):
    (tmp_path / "project").mkdir()
    seen: Counter[tuple[str, str]] = Counter()
    wrong = []
    for kind, given, outcome in outcomes(CASES, tmp_path / "project"):
        seen[kind, outcome] += 1
        if outcome not in ("refused", "accepted"):
            wrong.append(f"{kind}: {outcome}: {str(given)[:500]}")
    assert wrong == []
    assert sum(seen.values()) == CASES
    for kind in ("setting", "override", "file of conf/", "params.yaml"):  # it looks on both sides
        assert seen[kind, "refused"] > 40 and seen[kind, "accepted"] > 1, kind
    assert seen["setting", "accepted"] > 200
