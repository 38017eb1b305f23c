"""What `ftlab sample` shows of the target task."""

from pipelines.commands.sample import coloured


def test_a_letter_is_bold_noise_red_and_blanks_faint():
    shown = coloured("K>_K!")
    assert [(shown.plain[s.start : s.end], str(s.style)) for s in shown.spans] == [
        ("_", "dim"), ("K", "bold"), ("!", "red")
    ]  # fmt: skip
