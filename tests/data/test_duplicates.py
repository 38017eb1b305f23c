"""Partitions of hashes, and equal documents in one."""

import numpy as np

from pipelines.data.mixture import Partition, boundary, find_copies


def hashes(path, *columns):
    """A segment's file: the first four bits of the hash, its other half, and the document's number
    in it.
    """
    rows = np.array(sorted(columns), np.uint64).T
    rows[0] <<= np.uint64(60)
    np.save(path, rows)
    return path


def test_copies_within_a_part_and_first_ones_of_several_parts_are_told(tmp_path):
    """Half of a hash in common is none."""
    first = hashes(tmp_path / "a.npy", (5, 1, 0), (5, 2, 1), (7, 2, 2), (9, 3, 4), (9, 3, 3))
    second = hashes(tmp_path / "b.npy", (9, 3, 1), (6, 6, 0), (9, 3, 2), (7, 2, 3))
    third = hashes(tmp_path / "c.npy", (6, 6, 1), (6, 6, 0))
    starts, parts = np.array([0, 5, 9]), np.array([0, 5])
    (found,) = find_copies(Partition(0, 1, [first, second, third], starts, parts))
    # in order of hashes: (6, 6) is in the second part alone, (7, 2) and (9, 3) are in both
    assert found.within.tolist() == [9, 10, 4, 7]
    assert found.shared.tolist() == [2, 8, 3, 6]
    assert (found.group.tolist(), found.groups) == ([0, 0, 1, 1], 2)
    (upper,) = find_copies(Partition(1, 2, [first, second, third], starts, parts))
    assert (upper.within.tolist(), upper.shared.tolist()) == ([4, 7], [3, 6])


def test_partitions_have_equal_shares_of_all_hashes():
    first = np.arange(16, dtype=np.uint64) << np.uint64(60)
    task = Partition(0, 4, [], np.empty(0), np.empty(0))
    assert [boundary(first, task, number) for number in range(5)] == [0, 4, 8, 12, 16]
