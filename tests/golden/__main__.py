"""Freezes all curves anew, and says which moved: `make golden`."""

from tests.golden.curves import FAMILIES, laboratory
from tests.golden.frozen import differences, frozen_curves, path_of, write

with laboratory():
    for family, compute in FAMILIES.items():
        found, path = compute({}), path_of(family)
        frozen = frozen_curves(family)[0] if path.exists() else {}
        write(path, found)
        print("\n  ".join([path.name, *(differences(frozen, found, 0.0) or ["nothing moved"])]))
