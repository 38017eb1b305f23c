"""The CUDA build of exactly the pinned PyTorch, as far as the driver serves one; for `make gpu`.

    python -m perf.gpu.wheels

`==` would leave a CPU build in place, as 2.13.0+cpu is 2.13.0 to pip, so the version is compared to
the letter. Needs no package: it runs before any is installed.
"""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from pipelines import ROOT
from pipelines.common import errors
from pipelines.common.errors import UserError

PYPI_CUDA, INDEX_CUDA = 13, 12  # CUDA versions that PyTorch 2.13 is built for, 13.0 and 12.6
INDEX_BUILD, INDEX_URL = "cu126", "https://download.pytorch.org/whl/cu126"


def pinned() -> str:
    found = re.search(
        r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M
    )
    assert found, "constraints.txt pins torch"
    return found[1]


def wanted(driver: str, torch: str) -> tuple[str, list[str]]:
    """Version and other arguments for pip, by nvidia-smi's words; raises UserError if none fits."""
    found = re.search(r"CUDA[\w ]* Version:\s*(\d+)", driver)
    if not found:
        raise UserError("nvidia-smi does not say which CUDA version the driver supports")
    if (cuda := int(found[1])) >= PYPI_CUDA:
        return torch, []
    if cuda == INDEX_CUDA:
        return f"{torch}+{INDEX_BUILD}", ["--extra-index-url", INDEX_URL]
    raise UserError(
        f"the driver supports CUDA {cuda}, but PyTorch {torch} needs {INDEX_CUDA} or later"
    )


def installed() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def main() -> None:
    try:
        said = subprocess.check_output(["nvidia-smi"], encoding="utf-8")
    except (OSError, subprocess.CalledProcessError):
        raise UserError("no GPU on this machine: nvidia-smi finds none") from None
    build, more = wanted(said, pinned())
    if installed() in (build, f"{build}+cu130"):
        return
    print(f"installing torch {build}", file=sys.stderr, flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *more, f"torch==={build}"]
    if code := subprocess.run(pip).returncode:
        raise UserError(f"pip could not install torch {build}: exit code {code}, see above")


if __name__ == "__main__":
    errors.run(main)
