"""Memory that tensors have freed stays with the process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
from resource import RUSAGE_SELF, getrusage
import torch
from pipelines.host.pytorch import keep_freed_memory

def faults():
    for turn in range(20):
        if turn == 10:
            before = getrusage(RUSAGE_SELF).ru_minflt
        torch.ones(10 << 20)
    return getrusage(RUSAGE_SELF).ru_minflt - before

print(faults(), keep_freed_memory() or faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_freed_memory_is_used_again():
    """Ten times 40 MiB are 100 pages of 4 MiB, if pages are huge, or 102400 of 4 KiB."""
    done = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True)
    given_back, kept = map(int, done.stdout.split())
    assert 2 * kept < given_back
