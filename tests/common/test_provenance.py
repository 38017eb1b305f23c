"""What a training notes of where it ran, and that nothing depends on it."""

import os
import subprocess
from pathlib import Path

import torch

from pipelines.host import machine, pytorch


def test_a_device_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    known = {"cpu_name": "Some Processor @ 2 GHz"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    assert pytorch.device_name() == "Some Processor @ 2 GHz, 3 threads"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    assert pytorch.device_name() == "Some GPU"


def test_a_revision_has_changes_where_code_differs_but_not_by_what_a_run_itself_writes(
    tmp_path, monkeypatch
):
    def git(*words):
        author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "code.py"):
        Path(name).write_text("first\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    head = machine.git_revision()
    assert len(head) == 40
    Path("params.yaml").write_text("another experiment\n")
    Path("new.py").write_text("not tracked\n")
    Path("dvc.lock").write_text("what DVC stages after the first stage\n")
    git("add", "dvc.lock")
    assert machine.git_revision() == head
    git("config", "core.quotepath", "false")
    os.rename("code.py", b"caf\xe9.py")
    git("add", "--all", ".")
    assert machine.git_revision() == f"{head}+changes"
