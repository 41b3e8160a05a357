"""What is read of a running cluster: its configuration, and the labeler's levels beside it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.configuration.cluster import KEY, NAME, path_of
from webhook.inquiry.agents import levels
from webhook.inquiry.findings import State
from webhook.kube.client import ApiError

HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
OTHER = HEAD + "topology: {levels: {rack: x.io/rack, host: x.io/host}}\n"


class Cluster:
    """The boundary to an API server; text, labels: the two files, None where there is none."""

    def __init__(self, text: str | None, labels: str | None) -> None:
        self.text, self.labels = text, labels

    def json(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if path == path_of() and self.text is not None:
            return {"metadata": {"name": NAME}, "data": {KEY: self.text}}
        if self.labels is None or not path.endswith("/labeler"):
            raise ApiError(404, "NotFound", path)
        return {"metadata": {"name": "labeler"}, "data": {"labeler.yaml": self.labels}}


@pytest.mark.promise("O403")
@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        (HEAD, "sources: [udev]", []),
        (HEAD, None, []),
        (OTHER, "levels: [x.io/rack, x.io/host]", []),
        (OTHER, "sources: [udev]", ["the labeler writes topology.gke.io/cluster"]),
        (HEAD + "tier: x\n", "sources: [udev]", ["tier: unknown key"]),
    ],
    ids=["the default", "no labeler", "levels of one's own", "other levels", "a fault"],
)
def test_doctor_reports_a_labeler_whose_levels_the_configuration_does_not_have(
    text: str, labels: str | None, expected: list[str]
) -> None:
    cluster: Any = Cluster(text, labels)
    found = [each for each in levels(cluster, datetime.now(UTC)) if each.state is not State.WELL]
    assert len(found) == len(expected)
    assert all(words in each.sentence for words, each in zip(expected, found, strict=True))


def test_doctor_names_the_configmap_of_the_configuration_where_it_is_deleted() -> None:
    cluster: Any = Cluster(None, "sources: [udev]")
    with pytest.raises(ApiError, match=NAME):
        list(levels(cluster, datetime.now(UTC)))
