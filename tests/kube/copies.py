"""Copies of ConfigMaps, and a client whose requests a test can see and bend."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml

from hack.local.cluster import Cluster
from webhook.kube.client import Api, Stream
from webhook.kube.collection import WATCH_SECONDS
from webhook.kube.informer import Informer
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct


class Data(Struct, frozen=True):
    size: Literal["1", "2", "3"] = "1"


class ConfigMap(Struct, frozen=True):
    metadata: Metadata
    data: Data = Data()


class Observed(Api):
    """Notes what is asked, and lets a test change it on the way."""

    queries: list[dict[str, str]]
    change: Callable[[dict[str, str]], None]

    @classmethod
    def to(cls, cluster: Cluster) -> "Observed":
        made = cls.connect(cluster.kubeconfig, user_agent="test")
        assert isinstance(made, cls)
        made.queries = []
        made.change = lambda _: None
        return made

    def note(self, query: Mapping[str, str]) -> dict[str, str]:
        self.queries.append(dict(query))
        asked = dict(query)
        self.change(asked)
        return asked

    def request(self, method: str, path: str, **options: Any) -> bytes:
        if options.get("query"):
            options["query"] = self.note(options["query"])
        return super().request(method, path, **options)

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Stream:
        return super().stream(path, query=self.note(query), timeout_seconds=timeout_seconds)

    @property
    def lists(self) -> int:
        """How many lists were begun."""
        return sum("sendInitialEvents" in each for each in self.queries) + sum(
            "limit" in each and "continue" not in each for each in self.queries
        )

    @property
    def watches(self) -> int:
        """How many watches were asked for."""
        return sum("resourceVersion" in each for each in self.queries)


@contextmanager
def copy_of(api: Api, path: str, **options: Any) -> Iterator[Informer[ConfigMap]]:
    copy = Informer(api, path, ConfigMap, **options)
    copy.start()
    try:
        assert copy.wait_synced(90), "no list within 90 s"
        yield copy
    finally:
        copy.stop()


def create(api: Api, path: str, *names: str, size: str = "1", **data: str) -> None:
    for name in names:
        body = {"metadata": {"name": name}, "data": {"size": size, **data}}
        api.request("POST", path, body=body)


def resize(api: Api, path: str, name: str, size: str) -> None:
    body = {"data": {"size": size}}
    api.request("PATCH", f"{path}/{name}", body=body, content_type="application/merge-patch+json")


def sizes(copy: Informer[ConfigMap]) -> dict[str, str]:
    """Name -> size, without the ConfigMap that every namespace has."""
    return {
        item.metadata.name: item.data.size
        for item in copy.items().values()
        if item.metadata.name != "kube-root-ca.crt"
    }


def break_watch(cluster: Cluster, api: Observed, copy: Informer[ConfigMap]) -> None:
    """Cut the connection of its watch, and wait until it has asked for another."""
    cluster.wait_for("a watch", lambda: api.watches > 0)
    before = api.watches

    def is_broken() -> bool:
        copy._collection.cut()
        return api.watches > before

    # Later a watch would have ended by itself.
    cluster.wait_for("the next watch", is_broken, WATCH_SECONDS / 2)


def connect(folder: Path, address: str) -> Api:
    path = kubeconfig(folder, {})
    path.write_text(path.read_text().replace("http://127.0.0.1:1", address))
    return Api.connect(path, user_agent="test")


def kubeconfig(folder: Path, user: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [
            {"name": "default", "context": {"cluster": "c", "user": "nobody"}},
            {"name": "mine", "context": {"cluster": "c", "user": "me"}},
        ],
        "users": [{"name": "nobody", "user": {}}, {"name": "me", "user": user}],
        "current-context": "default",
    }
    path.write_text(yaml.safe_dump(content))
    return path
