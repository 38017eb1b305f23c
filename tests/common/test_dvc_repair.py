"""Files of DVC that a kill has cut short stop no later command."""

from pathlib import Path

from dvc.exceptions import DvcException
from dvc.repo import Repo

from pipelines.common.dvc_repair import LOCKFILE, RWLOCK, repair
from tests.support.mutants import rejects

STAGES = (
    "stages:\n  one:\n    cmd: echo 1 > out && echo x >> runs\n    deps: [in]\n    outs: [out]\n"
)


def reproduce():
    with Repo(".") as repo:
        repo.reproduce()


def readable():
    try:
        with Repo(".") as repo:
            repo.status()
            return True
    except (DvcException, NotImplementedError):  # the latter of a hash's name that was cut
        return False


@rejects(
    'return «lockfile.read_bytes().endswith(b"\\n")→True»',
    "a lock file of DVC that was cut within a word stays",
)
@rejects("«LOCKFILE.unlink()→»", "a lock file of DVC that was cut short stays")
def test_a_lock_file_and_notes_of_who_is_at_work_cut_anywhere_cost_no_run(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Repo.init(".", no_scm=True).close()
    Path("in").write_text("0")
    Path("dvc.yaml").write_text(STAGES)
    reproduce()
    text, removed = LOCKFILE.read_text(), 0
    for length in range(0, len(text), 3):
        LOCKFILE.write_text(text[:length])
        RWLOCK.write_text('{"read": {"/x": [{"pi'[:length])
        repair()
        assert not RWLOCK.exists()
        removed += not LOCKFILE.exists()
        assert readable(), length
    assert removed > 5
    assert capsys.readouterr().err.count("dvc.lock was truncated") == removed
    LOCKFILE.write_text("")
    RWLOCK.write_text("{}")
    repair()
    assert RWLOCK.read_text() == "{}"
    reproduce()
    assert LOCKFILE.read_text() == text
    assert Path("runs").read_text() == "x\n"
