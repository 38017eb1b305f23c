"""What the Hugging Face hub is asked."""


class NoCommit(Exception):
    """The hub names no commit of a dataset."""


def dataset_commit(dataset: str, revision: str | None, timeout: float | None = None) -> str:
    """The commit of a dataset's branch or tag; raises NoCommit, and what the library raises."""
    from huggingface_hub import HfApi  # takes a second to import

    commit = HfApi().dataset_info(dataset, revision=revision, timeout=timeout).sha
    if not commit:
        raise NoCommit("the hub names no commit")
    return commit
