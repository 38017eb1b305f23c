"""Where MLflow shows the runs of an experiment: on its own server, else that of `make ui`."""

from contextlib import suppress

from pipelines.common.errors import UserError
from pipelines.tracking.store import AWAY, DEFAULT_STORE, KEY_TAG, Store, store_uri

LOCAL = "http://127.0.0.1:5000"


def base_address() -> str:
    uri = store_uri()
    return uri.rstrip("/") if uri.startswith("http") else LOCAL


def run_pages(experiment: str) -> dict[str, str]:
    """Addresses by the run's key; empty if there is no store or it does not answer."""
    if store_uri().endswith(str(DEFAULT_STORE.resolve())) and not DEFAULT_STORE.exists():
        return {}  # which would be made
    with suppress(UserError, *AWAY):
        client = Store().client
        if found := client.get_experiment_by_name(experiment):
            place = f"{base_address()}/#/experiments/{found.experiment_id}/runs"
            runs = client.search_runs([found.experiment_id])
            return {run.data.tags.get(KEY_TAG, ""): f"{place}/{run.info.run_id}" for run in runs}
    return {}
