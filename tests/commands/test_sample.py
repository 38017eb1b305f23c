"""What `ftlab sample` shows of the target task."""

import pytest
from rich.console import Console

from pipelines.sample import coloured


@pytest.mark.parametrize(
    ("no_color", "noise"), [("", "\033[31m!\033[0m"), ("1", "!")], ids=["", "NO_COLOR"]
)
def test_a_letter_is_bold_noise_red_and_blanks_faint(monkeypatch, capsys, no_color, noise):
    for name, value in {"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": no_color}.items():
        monkeypatch.setenv(name, value)
    Console().print(coloured("K>_K!"))
    assert capsys.readouterr().out == f"K>\033[2m_\033[0m\033[1mK\033[0m{noise}\n"
