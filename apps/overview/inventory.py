"""What contradicts the declared inventory of a deployment's cluster."""

from __future__ import annotations

from collections.abc import Iterator

from apps.fleet import selectors as fleet

from .domain.types import Banner, Status, Text
from .loaded import Loaded


def banners(loaded: Loaded) -> Iterator[Banner]:
    """More GPUs wanted than provisioned is a defect of the data (2 queries): it is told, nothing is
    cut to fit, and what is provisioned and what is in use are both counted as they are
    (DESIGN law 11)."""
    cluster = loaded.topology.cluster_id
    total, used = fleet.gpus_provisioned(cluster, loaded.now), fleet.gpus_in_use(cluster)
    if total is not None and used is not None and used > total:
        params = {"gpus_used": used, "gpus_total": total}
        yield Banner(Status.WARN, Text("banner.gpus_beyond_inventory", params))
