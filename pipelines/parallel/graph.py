"""The pipeline as DVC reads it from dvc.yaml: stages, what each depends on, what has changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter

from dvc.repo import Repo


@dataclass
class Graph:
    """Stages by the names that DVC gives them: `train@baseline`."""

    needs: dict[str, set[str]]  # the stages whose outputs each reads
    always: set[str]  # stages that DVC runs at every call

    def upstream(self, names: Iterable[str]) -> set[str]:
        """The named stages and all that they need, directly or not."""
        every, new = set[str](), set(names)
        while new:
            every |= new
            new = {need for name in new for need in self.needs[name]} - every
        return every

    def downstream(self, names: Iterable[str]) -> set[str]:
        """The named stages and all that need them, directly or not."""
        wanted = set(names)
        return {name for name in self.needs if self.upstream([name]) & wanted}

    def priorities(self, costs: dict[str, float]) -> dict[str, float]:
        """For each stage, the cost of the longest way from its start to the end of the pipeline."""
        longest = dict.fromkeys(self.needs, 0.0)
        for name in reversed([*TopologicalSorter(self.needs).static_order()]):
            longest[name] += costs.get(name, 0.0)
            for need in self.needs[name]:
                longest[need] = max(longest[need], longest[name])
        return longest


def read_graph() -> Graph:
    """The graph of the current folder's pipeline, with params.yaml as it is now.

    Raises DvcException, for example if two stages write one path.
    """
    with Repo(".") as repo:
        graph = repo.index.graph
        names = {stage: stage.addressing for stage in graph}
        return Graph(
            {name: {names[need] for need in graph.successors(s)} for s, name in names.items()},
            {name for stage, name in names.items() if stage.always_changed},
        )


def changed_stages() -> set[str]:
    """Stages whose command, parameters, dependencies or outputs differ from dvc.lock."""
    with Repo(".") as repo:
        return {name.rpartition(":")[2] for name in repo.status()}
