"""DVC and the commands of its stages are this Python's."""

import sys
from pathlib import Path
from shutil import which

from pipelines.common.dvc_command import dvc_environment
from tests.support.mutants import rejects


@rejects(
    'join([«str(Path(sys.executable).parent), os.environ.get("PATH", "")→'
    'os.environ.get("PATH", ""), str(Path(sys.executable).parent)»])',
    "stages run by the first Python of PATH",
)
def test_the_python_of_stages_is_this_one_whatever_is_activated(monkeypatch, tmp_path):
    (tmp_path / "python").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert which("python", path=dvc_environment()["PATH"]) == str(
        Path(sys.executable).parent / "python"
    )
