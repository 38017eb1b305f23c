"""The synthetic processes by name, as a data file's ``source`` gives it.

A new process is a module with a ``PROCESS``, and its line here.
"""

from ftmodel.synthetic import coin_flip, factors, path_star, reviews, target_task

PROCESSES = {
    "target": target_task.PROCESS,
    "coin": coin_flip.PROCESS,
    "reviews": reviews.PROCESS,
    "path_star": path_star.PROCESS,
    "factors": factors.PROCESS,
}
