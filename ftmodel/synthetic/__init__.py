"""The synthetic processes by name, as a data file's ``source`` gives it.

A new process is a module with a ``PROCESS``, and its line here; a process in several sizes has a
line for each size.
"""

from ftmodel.synthetic import coin_flip, factors, reviews, target
from ftmodel.synthetic.path_star import PathStar

PROCESSES = {
    "target": target.PROCESS,
    "coin": coin_flip.PROCESS,
    "reviews": reviews.PROCESS,
    "path_star": PathStar(degree=3, arm=3, labels=12).process(),
    "path_star_2": PathStar(degree=2, arm=3, labels=8).process(),
    "path_star_2_reversed": PathStar(degree=2, arm=3, labels=8, reverse=True).process(),
    "factors": factors.PROCESS,
}
