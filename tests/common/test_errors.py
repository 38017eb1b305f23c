"""What is foreign in a folder of ours ends in one line; a file that is not there is a bug."""

import os
import subprocess
import sys

import pytest

from pipelines.host import errors
from tests.support.mutants import rejects


def follow_a_link_to_itself(folder):
    os.symlink("loop", folder / "loop")
    (folder / "loop").read_bytes()


@pytest.mark.parametrize(
    "meet",
    [
        lambda folder: (folder / "file/00000010.ckpt").write_text(""),
        lambda folder: (folder / "file").mkdir(exist_ok=True),
        lambda folder: folder.read_bytes(),
        lambda folder: (folder / ("a" * 300)).write_text(""),
        follow_a_link_to_itself,
    ],
    ids=["write below a file", "make what is a file", "read a folder", "long name", "loop"],
)
def test_a_foreign_file_is_one_line_that_names_it(meet, tmp_path, capsys):
    (tmp_path / "file").write_text("notes")
    with pytest.raises((SystemExit, OSError)) as caught:
        errors.run(lambda: meet(tmp_path))
    assert isinstance(caught.value, SystemExit) and caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and str(tmp_path) in line


def test_a_file_that_is_not_there_is_a_bug(tmp_path):
    with pytest.raises(FileNotFoundError):
        errors.run((tmp_path / "nothing").read_bytes)


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("print('x' * 100_000)", 141, ""),
        ("raise BrokenPipeError('a pipe of ours')", 1, "BrokenPipeError: a pipe of ours"),
    ],
)
def test_a_reader_who_has_seen_enough_is_no_bug(work, code, said):
    """`ftlab … | head`; but a pipe to another process that breaks is one."""
    program = f"from pipelines.host import errors\ndef main():\n    {work}\nerrors.run(main)"
    read, write = os.pipe()
    if code == 141:
        os.close(read)
    process = subprocess.run(
        [sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert process.returncode == code
    assert said in process.stderr and bool(said) == bool(process.stderr)


@rejects("errors.run: «open_closed_streams()→pass»", "a closed stdout is a bug")
@rejects("errors.open_closed_streams: «os.set_inheritable→»(descriptor", "closed in what it starts")
def test_a_closed_stream_is_as_one_that_nobody_reads():
    """`ftlab … >&-`, and what it starts prints on the same."""
    program = "import os, subprocess, sys\nfrom pipelines.host import errors\ndef main():\n"
    program += "    print('said')\n    print('heard', file=sys.stderr)\n"
    program += (
        "    open('/dev/null')\n    subprocess.run('echo done >&1', shell=True, check=True)\n"
    )
    program += "errors.run(main)"
    shell = f'exec "{sys.executable}" -c "$1" <&- >&-'
    process = subprocess.run(["sh", "-c", shell, "sh", program], stderr=subprocess.PIPE, text=True)
    assert (process.returncode, process.stderr) == (0, "heard\n")


@rejects("errors.run: «os.environ.pop(name, None)→pass»", "all stages on one core")
def test_settings_of_clusters_and_notebooks_do_not_reach_a_stage(monkeypatch):
    """PyTorch's threads on one core, the same for every stage; figures into a notebook."""
    for name in errors.BINDING:
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    errors.run(lambda: None)
    assert not {*errors.BINDING} & {*os.environ} and os.environ["MPLBACKEND"] == "agg"
