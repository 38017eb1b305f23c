"""Memory that tensors have freed stays with the process."""

import platform
import subprocess
import sys

import pytest

from tests.support.mutants import rejects

FAULTS = """
import resource, sys, torch
from pipelines.common.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for turn in range(20):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@rejects(
    "common/allocator.py",
    "mallopt(MMAP_THRESHOLD, NEVER)",
    "mallopt(MMAP_THRESHOLD, 1 << 20)",
    "large blocks of memory given back to the system",
)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_freed_memory_is_used_again():
    """Ten times 64 MiB are 160 pages of 4 MiB, if pages are huge, or 163840 of 4 KiB."""
    faults = {}
    for wanted in ("keep", "give back"):
        command = [sys.executable, "-c", FAULTS, wanted]
        faults[wanted] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert 2 * faults["keep"] < faults["give back"]
