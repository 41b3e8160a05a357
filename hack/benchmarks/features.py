"""What bad nodes and fair order cost a pass of the sweeper, beside the same pass with them off.

CPU time of passes in which nothing changes and 100 gangs of 100 pods find no room, over one played API
server (see large.py) and one copy of the cluster: of sweepers that differ in one feature alone, in turns.
In "bad nodes, 200 failures" as many gangs have failed on 40 nodes; fair order counts 50 namespaces. What is
put off to be cheap (looks at running pods, counts of use) falls on some passes, and counts in their mean.
"""

import argparse
import gc
import json
import logging
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hack.benchmarks.large import PlayedCluster, gated
from hack.observing.played import PODS, PlayedApi
from labeler.contract import keys
from webhook.extensions.known import SWITCHES
from webhook.extensions.node_health.gang_failures import FailureState, GangFailure
from webhook.extensions.node_health.saved_failures import NAME, encoded
from webhook.kube import placements
from webhook.kube.state_config_map import path_of
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.sweeper.context import Pass
from webhook.sweeper.node_rules import Avoid, BadNodes
from webhook.sweeper.observe.cache import NODES, ClusterCache
from webhook.sweeper.settings import Settings
from webhook.sweeper.sweep import Sweeper

PATH: Final = path_of(NAME)
FAILURES: Final = 200
BROKEN: Final = 40
OFF: Final = Settings(bad_nodes=BadNodes(avoid=Avoid.OFF))


class KeptApi(PlayedApi):
    """With the ConfigMaps in which failures and use are kept. kept: data by path."""

    def __init__(self, collections: Any) -> None:
        super().__init__(collections)
        self.kept: dict[str, dict[str, str]] = {}

    def request(self, method: str, path: str, **options: Any) -> bytes:
        """As Api.request."""
        if "/configmaps/" not in path:
            return super().request(method, path, **options)
        data = self.kept.setdefault(path, {})
        if method == "PATCH":
            data.update(options["body"]["data"])
        return json.dumps({"metadata": {"resourceVersion": "1"}, "data": data}).encode()


class FeaturesCluster(PlayedCluster):
    """Sweepers over one played cluster."""

    def __init__(self, count: int, bound: int) -> None:
        """As PlayedCluster."""
        super().__init__(count, bound)
        self.api: KeptApi = KeptApi({NODES: self._nodes, PODS: self._bound_pods, placements.ALL: self._plans})

    def failures(self) -> tuple[GangFailure, ...]:
        """Of which some nodes are avoided."""
        now = int(time.time())
        return tuple(
            GangFailure(
                f"team-{number % 50}", f"gone-{number}", now - 900, now - 600 - number, 20,
                "exit status 1", 8, f"asks-{number}",
                ((f"gone-{number}", self.grid[number % BROKEN].name),), FailureState.PROVEN,
            )
            for number in range(FAILURES)
        )  # fmt: skip

    def compared(self, rounds: int) -> dict[str, list[float]]:
        """Milliseconds of CPU of each pass, by what is switched on."""
        gangs = [gated(f"wait-{number}", 100, level="block") for number in range(100)]
        self.early = [pod for gang in gangs for pod in gang]
        cache = ClusterCache(self.api, keys.GATE_PREFIX)
        fair = Policy(fair_order=FairOrder())
        plain = self._sweeper(cache, OFF, lambda: None)
        sweepers = {
            "neither": plain,
            "bad nodes": self._sweeper(cache, Settings(), lambda: None),
            "fair order": self._sweeper(cache, OFF, lambda: fair),
        }
        try:
            cache.start()
            while not cache.synced:
                time.sleep(0.01)
            for _ in range(2):
                for sweeper in sweepers.values():
                    self._settle(cache, sweeper)
            self.api.kept[PATH] = {"failures": encoded(self.failures())}
            name = f"bad nodes, {FAILURES} failures"
            sweepers[name] = self._sweeper(cache, Settings(), lambda: None)
            self._settle(cache, sweepers[name])
            if '"node"' not in self.api.kept[PATH].get("avoided", ""):
                raise SystemExit("no node is avoided for these failures")
            gc.collect()
            gc.disable()  # its rounds would fall on any of them
            found: dict[str, list[float]] = {name: [] for name in sweepers}
            for _ in range(rounds):
                for name, sweeper in sweepers.items():
                    found[name].append(_cpu(sweeper.sweep))
            return found
        finally:
            for sweeper in sweepers.values():
                sweeper.close()
            cache.stop()

    def _sweeper(
        self, cache: ClusterCache, settings: Settings, policy: Callable[[], Policy | None]
    ) -> Sweeper:
        surroundings = Pass(
            self.api, cache, settings, stopping=threading.Event(), policy=policy, extensions=SWITCHES
        )
        return Sweeper(surroundings)


def _cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench features", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000, help="that run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.ERROR)
    found = FeaturesCluster(options.nodes, options.pods).compared(options.rounds)
    beside = statistics.mean(found["neither"])
    for name, taken in found.items():
        mean, middle = statistics.mean(taken), statistics.median(taken)
        print(
            f"{name:26} mean {mean:6.1f} ms, median {middle:6.1f} ms; "
            f"{mean / beside:.2f} of a pass with neither",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
