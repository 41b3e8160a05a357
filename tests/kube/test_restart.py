"""One restart of the API server, with its history compacted away, as several copies live through it."""

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.kube.copies import ConfigMap, Observed, break_watch, copy_of, create, resize, sizes
from tests.support import create_namespace
from webhook.kube import informer as module
from webhook.kube.client import ApiError
from webhook.kube.informer import Informer

BEFORE = {"stays": "1", "goes": "1", "changes": "1"}
AFTER = {"stays": "1", "changes": "3", "comes": "1"}


@dataclass
class Watched:
    """A copy, its client, what it was when the server was away, and what it has reported."""

    api: Observed
    copy: Informer[ConfigMap]
    meanwhile: dict[str, str] = field(default_factory=dict)
    changes: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def restarted(module_cluster: Cluster) -> Iterator[dict[str, Watched]]:
    """Two copies: one that was connected all the time, and one that got nothing of the changes."""
    path = f"/api/v1/namespaces/{create_namespace(module_cluster)}/configmaps"
    create(module_cluster.api(), path, *BEFORE)
    watched: dict[str, Watched] = {}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_PAUSE_SECONDS", 0.2)
        patch.setattr(module, "_WATCH_FAILURES", 10**6)  # what leads to a list here is the server's word
        for name in ("connected", "cut-off"):
            api = Observed.to(module_cluster)
            changes: list[tuple[str, str]] = []

            def note(before: ConfigMap | None, after: ConfigMap | None, changes: Any = changes) -> None:
                item = after or before
                assert item is not None
                changes.append((item.metadata.name, "gone" if after is None else after.data.size))

            copy = stack.enter_context(copy_of(api, path, on_event=note))
            watched[name] = Watched(api, copy, changes=changes)
            changes.clear()
        cut_off(module_cluster, watched["cut-off"])
        module_cluster.api().request("DELETE", f"{path}/goes")
        create(module_cluster.api(), path, "comes")
        is_connected = partial(is_level, watched["connected"].copy)
        module_cluster.wait_for("the one that is connected to hear of it", is_connected)
        compact(module_cluster)
        module_cluster.running["kube-apiserver"].send(signal.SIGKILL)
        module_cluster.stop("kube-apiserver")
        for each in watched.values():
            each.meanwhile = sizes(each.copy)
        module_cluster.start("kube-apiserver")
        watched["cut-off"].api.change = lambda _: None
        resize(module_cluster.api(), path, "changes", "3")
        for name, each in watched.items():
            module_cluster.wait_for(f"{name} to be right", partial(is_right, each.copy))
        yield watched


def is_level(copy: Informer[ConfigMap]) -> bool:
    return "comes" in sizes(copy) and "goes" not in sizes(copy)


def is_right(copy: Informer[ConfigMap]) -> bool:
    return sizes(copy) == AFTER


def cut_off(cluster: Cluster, watched: Watched) -> None:
    """From now on it reaches the server no more."""

    def refuse(query: dict[str, str]) -> None:
        raise ApiError(0, "Unreachable", "held back by the test")

    watched.api.change = refuse
    break_watch(cluster, watched.api, watched.copy)


def compact(cluster: Cluster) -> None:
    """Make etcd forget its history (by its JSON gateway)."""

    def ask(call: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{cluster.ports.etcd}/v3/kv/{call}", data=json.dumps(body).encode()
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as response:
            return json.load(response)

    revision = ask("range", {"key": "AA=="})["header"]["revision"]
    ask("compaction", {"revision": revision, "physical": True})


@pytest.mark.parametrize("name", ["connected", "cut-off"])
def test_after_a_restart_every_copy_is_right(restarted: dict[str, Watched], name: str) -> None:
    assert sizes(restarted[name].copy) == AFTER


@pytest.mark.parametrize(
    ("name", "meanwhile"),
    [("connected", {"stays": "1", "changes": "1", "comes": "1"}), ("cut-off", BEFORE)],
    ids=["connected", "cut-off"],
)
def test_while_the_server_is_away_a_copy_stays_as_it_last_was(
    restarted: dict[str, Watched], name: str, meanwhile: dict[str, str]
) -> None:
    assert restarted[name].meanwhile == meanwhile


def test_a_copy_whose_version_was_forgotten_lists_again_and_reports_what_it_missed(
    restarted: dict[str, Watched],
) -> None:
    assert restarted["cut-off"].api.lists >= 2, "nothing had expired"
    changes = dict(restarted["cut-off"].changes)
    assert changes["goes"] == "gone"
    assert changes["comes"] == "1"
    assert changes["changes"] == "3"
    assert "stays" not in changes
