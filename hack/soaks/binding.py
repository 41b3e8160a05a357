"""hack/binding: random gangs under contention, and which run below their minimum 5 s after their first bind.

Jobs, elastic ones, sets of two Jobs, groups of a LeaderWorkerSet and pods by annotation come to a cluster
that is too small for them; some find a PodGroup of an earlier life. Pods of others take nodes between plan
and bind, nodes are cordoned, fail and go, pods are deleted, more important pods preempt, and the sweeper is
killed at each of its writes. What a gang loses itself after its first bind is excluded and counted. In the
end the disturbances stop, and every Job must run to its end. With `--bind podgroup` no gang
may run below its minimum; with `pinned` those are counted.
"""

import argparse
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from hack.local import native_gangs, nodes
from hack.local.build import announce
from hack.local.cluster import Cluster
from hack.local.install import Installation
from hack.soaks.crowd import FOREIGN, OURS, UNFINISHED, Crowd
from hack.soaks.dying_sweeper import (
    BY_ITSELF,
    OF_POD_GROUPS,
    REPLACING,
    WRITES,
    DyingSweeper,
)
from hack.soaks.ending import unfinished
from hack.soaks.partial_gangs import GANG, PartialGangs, annotations_of, loss_of
from hack.soaks.passes import defects
from hack.soaks.plan import PINNED, POD_GROUP, SETTINGS
from hack.soaks.reader import PLACEMENTS, PODS, CollectionReader
from hack.soaks.sweepers import lines_of, set_bind
from hack.soaks.takes import GPUS
from hack.soaks.tried import exercised
from hack.soaks.trouble import Trouble
from labeler.contract import keys
from webhook.kube.client import Api, ApiError
from webhook.workloads import marks
from webhook.workloads.pod_group_names import bind_group_name

SHAPE: Final = nodes.Shape(nodes=24, blocks=3, subblocks=2)
BARE: Final = ("leaderworkerset", "pods")
"""Kinds whose pods nobody makes again."""
NAMED: Final = (*BARE, "jobset")
"""Kinds of which the name of the PodGroup is known before their pods are."""
MISFITS: Final = 0.5
"""This share of these finds a PodGroup of an earlier life, which the sweeper has to replace."""
KINDS: Final = ("job", "job", "elastic", "elastic", "jobset", "jobset", "leaderworkerset", "pods")
SIZES: Final = (2, 2, 3, 4, 4, 6, 8, 12)
SCHEDULER: Final = "default-scheduler"
MOST_PODS: Final = 130
"""Unfinished ones, before new gangs wait."""
SECONDS: Final = (6.0, 9.0)
"""For how long pods run: longer than a gang is judged."""
TAKEN: Final = 0.3
"""Of this share of plans a node is taken before their pods are bound."""
DISTURB_EVERY: Final = 1.5
PREEMPT_EVERY: Final = 7.0
END_SECONDS: Final = 120.0
PATIENCE: Final = 45.0
"""Longer than the Job controller takes for a second pod that failed: before that a gang has all its pods."""

Json = dict[str, Any]


class _CheckerReader(CollectionReader):
    """Passes versions on to a judge."""

    def __init__(self, api: Api, path: str, checker: Callable[[str, Json], None]) -> None:
        super().__init__(api, path)
        self._check = checker

    def on_version(self, kind: str, item: Json, *, in_order: bool) -> None:
        self._check(kind, item)


class Thief(CollectionReader):
    """Takes a node of some plans as soon as they are written, by pods that are sent there directly."""

    def __init__(self, api: Api, crowd: Crowd, choices: random.Random, done: Counter[str]) -> None:
        """choices: which; done: counts them."""
        super().__init__(api, PLACEMENTS)
        self._crowd, self._random, self._done = crowd, choices, done
        self._seen: set[str] = set()
        self.is_over = False

    def on_version(self, kind: str, item: Json, *, in_order: bool) -> None:
        """Take a node of each plan once, if at all."""
        new = [
            each for each in item["spec"].get("pods", ()) if each["node"] and each["uid"] not in self._seen
        ]
        if kind == "DELETED" or not new or self.is_over:
            return
        self._seen |= {each["uid"] for each in new}
        if self._random.random() < TAKEN:
            node = self._random.choice(sorted(each["node"] for each in new))
            self._done["nodes taken"] += 1
            seconds = self._random.uniform(3, 14)
            name = f"thief-{self._done['nodes taken']}"
            try:
                self._crowd.post_foreign(name, 8, seconds=seconds, spec={"nodeName": node})
            except ApiError as error:
                self._done[f"refused: thief {error.status}"] += 1


class Gangs:
    """Makes random gangs, one kind after the other."""

    def __init__(self, api: Api, mode: str, choices: random.Random, done: Counter[str]) -> None:
        """mode: bind of the policy. done: counts them."""
        self._api, self._mode, self._random, self._done = api, mode, choices, done
        self.crowd = Crowd(api, MOST_PODS, choices, done)

    def create(self, *, is_replacing: bool = False) -> None:
        """One more, unless too many pods wait. Raises ApiError.

        is_replacing: whether the sweeper is to replace a PodGroup for it.
        """
        left = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        if sum(pod["metadata"]["namespace"] in (OURS, FOREIGN) for pod in left) >= MOST_PODS:
            return
        number, size = self._done["gangs"], self._random.choice(SIZES)
        kind, gpus = self._random.choice(NAMED if is_replacing else KINDS), self._random.choice((2, 4, 8, 8))
        is_replacing |= kind in NAMED and self._random.random() < MISFITS
        self._done["gangs"] += 1
        self._done[kind] += 1
        name = f"{kind}-{number}"
        minimum = self._random.randint(1, size) if kind == "elastic" else size
        annotations = annotations_of(name, minimum)
        if self._random.random() < 0.3 and size * gpus <= 48:
            annotations[keys.REQUIRED_TOPOLOGY_ANNOTATION] = "block"
        if kind == "elastic":
            annotations[keys.GANG_MIN_SIZE_ANNOTATION] = str(minimum)
        spec = {"priorityClassName": self._random.choice(("", "", "gpu-high-priority"))}
        if kind in ("job", "elastic"):
            self._job(name, size, gpus, annotations, {}, spec)
            return
        self._of_named_kind(kind, name, size, gpus, annotations, spec, is_replacing=is_replacing)

    def _of_named_kind(
        self,
        kind: str,
        name: str,
        size: int,
        gpus: int,
        annotations: dict[str, str],
        spec: Json,
        *,
        is_replacing: bool,
    ) -> None:
        """A gang of one of the kinds NAMED, whose size an annotation says."""
        annotations[keys.GANG_SIZE_ANNOTATION] = str(size)
        labels = _labels_of(kind, name)
        if kind == "pods":
            annotations[keys.GANG_ANNOTATION] = name
        if is_replacing and self._mode == POD_GROUP:
            priority_class = spec["priorityClassName"]
            group = bind_group_name(labels, annotations, priority_class, SCHEDULER)
            self._post_misfit(group, size)
        if kind == "jobset":
            for part, count in (("a", size // 2), ("b", size - size // 2)):
                self._job(f"{name}-{part}", count, gpus, annotations, labels, spec)
            return
        labels |= {"soak": kind}
        seconds = self._random.uniform(*SECONDS)
        self.crowd.post_pods(name, size, {GPUS: gpus}, annotations, labels, spec, seconds)

    def _post_misfit(self, name: str, size: int) -> None:
        """A PodGroup of topogate's that has this name and asks for more pods than will come."""
        body = native_gangs.pod_group(self._api, name, size + 1)
        body["metadata"]["labels"] = {keys.BIND_LABEL: keys.BIND_POD_GROUP}
        self._api.request("POST", native_gangs.path(self._api, OURS), body=body)
        self._done["PodGroups to be replaced"] += 1

    def _job(
        self, name: str, size: int, gpus: int, annotations: dict[str, str], labels: dict[str, str], spec: Json
    ) -> None:
        seconds = self._random.uniform(*SECONDS)
        self.crowd.post_job(name, size, {GPUS: gpus}, dict(annotations), labels, spec, seconds)


def _labels_of(kind: str, name: str) -> dict[str, str]:
    """What the controller of such a gang writes on its pods."""
    if kind == "jobset":
        return {marks.JOBSET_NAME_LABEL: name}
    if kind == "leaderworkerset":
        return {marks.LEADER_WORKER_SET_NAME_LABEL: name, marks.LEADER_WORKER_SET_GROUP_LABEL: f"{name}-0"}
    return {}


class BindingRun:
    """One run on a cluster that is fresh."""

    def __init__(self, cluster: Cluster, mode: str, gangs: int, seed: int) -> None:
        """mode: bind of the policy."""
        self.cluster, self.mode, self.gangs = cluster, mode, gangs
        self.api, self.done = cluster.api(), Counter[str]()
        self.is_as_one = mode != PINNED
        self.installation = Installation(cluster)
        self.grid = {node.name: node for node in nodes.grid(SHAPE)}
        self._choices: Callable[[str], random.Random] = lambda whose: random.Random(f"{whose} {seed}")
        self.checker = PartialGangs(PATIENCE, self.is_as_one)
        self.create = Gangs(self.api, mode, self._choices("gangs"), self.done)
        self.thief = Thief(cluster.api(), self.create.crowd, self._choices("thief"), self.done)
        self.readers = [
            _CheckerReader(cluster.api(), PODS, self.checker.pod),
            _CheckerReader(cluster.api(), "/api/v1/nodes", self.checker.node),
            self.thief,
        ]
        self.trouble = Trouble(cluster, self.grid, [], self._choices("trouble"), self.done)

    def run(self) -> list[str]:
        """Do it all; returns what was wrong, as sentences. Raises ClusterError."""
        self._set_up()
        try:
            self._disturb()
            announce(f"  No more disturbances: {dict(sorted(self.done.items()))}")
            return self._end()
        finally:
            for reader in self.readers:
                reader.stopping.set()
            self.sweeper.program.stop()
            self.installation.stop()

    def _set_up(self) -> None:
        api = self.api
        self.installation.set_up()
        set_bind(api, self.mode)
        self.installation.start(("certs", "webhook"))
        nodes.register(api, self.grid.values())
        self.cluster.make_namespace(OURS, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        self.cluster.make_namespace(FOREIGN)
        settings = {**SETTINGS, "patience_seconds": PATIENCE}
        writes = (*WRITES, *(OF_POD_GROUPS if self.is_as_one else ()))
        choices = self._choices("deaths")
        self.sweeper = DyingSweeper(self.installation, choices, writes, settings)
        for reader in self.readers:
            reader.start()
        self.sweeper.start()

    def _disturb(self) -> None:
        actions: dict[str, tuple[float, Callable[[], None]]] = {
            "disturb": (DISTURB_EVERY, self.trouble.something),
            "preempt": (PREEMPT_EVERY, self._preempt),
            "say": (20.0, self._report),
            # Else they would be all that waits in the end.
            "end": (5.0, self._end_bare_pods_that_lack_others),
        }
        last = dict.fromkeys(actions, time.monotonic())
        while self.done["gangs"] < self.gangs:
            for name, (period, action) in actions.items():
                if time.monotonic() - last[name] >= period:
                    self._try(name, action)
                    last[name] = time.monotonic()
            self._try("undo", self.trouble.end_what_is_due)
            self._try("create", partial(self.create.create, is_replacing=self.sweeper.awaits in REPLACING))
            self.sweeper.look()
            self.checker.look()
            time.sleep(0.1)

    def _preempt(self) -> None:
        """A pod of others that kube-scheduler binds, and for which it may preempt."""
        self.done["foreign"] += 1
        name, priority = f"foreign-{self.done['foreign']}", "gpu-high-priority"
        self.create.crowd.post_foreign(name, 8, priority, self._choices(name).uniform(4, 8))

    def _report(self) -> None:
        judged = sum(self.checker.judged.values())
        announce(
            f"  {self.done['gangs']} gangs, {judged} starts judged, {len(self.checker.faults)} below minimum"
        )

    def _try(self, name: str, action: Callable[[], None]) -> None:
        """What the API server refuses is no fault of a program: pods are deleted, nodes are not there."""
        try:
            action()
        except ApiError as error:
            self.done[f"refused: {name} {error.status}"] += 1

    def _end(self) -> list[str]:
        """Wait until all is over; what is wrong."""
        self.thief.is_over = True
        self.trouble.make_good()
        self.sweeper.start(forever=True)
        self._end_bare_pods_that_lack_others()
        left = unfinished(self.api, END_SECONDS, self.checker.look, self.done, lambda: None)
        while self.checker.waits:
            self.checker.look()
            time.sleep(0.1)
        found = [fault for reader in self.readers for fault in reader.faults]
        found += [*left, *defects(lines_of([self.sweeper.program]))]
        if ended := self.sweeper.done[BY_ITSELF]:
            found.append(f"the sweeper ended by itself {ended} times, see its log")
        return found + (self.checker.faults if self.is_as_one else [])

    def _end_bare_pods_that_lack_others(self) -> None:
        """Nobody makes these again, so that what is left of their gangs may wait for ever."""
        query = {"labelSelector": f"soak in ({','.join(BARE)})"}
        pods = self.api.json("GET", f"/api/v1/namespaces/{OURS}/pods", query=query)["items"]
        there = Counter(pod["metadata"]["annotations"][GANG] for pod in pods if not loss_of("", pod))
        for metadata in (pod["metadata"] for pod in pods):
            size = int(metadata["annotations"][keys.GANG_SIZE_ANNOTATION])
            if there[metadata["annotations"][GANG]] < size:
                self._try("end", partial(self._delete, metadata["name"]))

    def _delete(self, name: str) -> None:
        self.api.request("DELETE", f"/api/v1/namespaces/{OURS}/pods/{name}")

    @property
    def summary(self) -> list[str]:
        """What was done and seen."""
        checker, deaths = self.checker, dict.fromkeys(self.sweeper.all_deaths, 0) | self.sweeper.done
        gangs, starts = checker.judged.keys() | checker.below.keys(), checker.judged + checker.below
        excluded = ", ".join(f"{what} {count}" for what, count in sorted(checker.excluded.items()))
        return [
            *(f"Drawn: {line}" for line in exercised(dict(sorted(self.done.items())))),
            *(f"Sweepers killed: {line}" for line in exercised(deaths)),
            f"{len(gangs)} gangs were judged in {starts.total()} starts.",
            f"{len(checker.below)} gangs ran below their minimum, in {checker.below.total()} starts.",
            f"Not judged, as they lost pods: {excluded or 'none'}.",
            f"The slowest had its minimum {checker.slowest:.2f} s after its first bind.",
        ]


def main(argv: list[str] | None = None) -> int:
    """Run hack/binding; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/binding", description=__doc__.split("\n")[0])
    parser.add_argument("--bind", choices=(PINNED, POD_GROUP), default=POD_GROUP)
    parser.add_argument("--gangs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--logs", type=Path, help="where to copy all programs' logs to")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    announce(f"Seed {seed}, {options.gangs} gangs, bind: {options.bind}.")
    logging.getLogger("webhook.kube").setLevel(logging.ERROR)
    with Cluster.fresh(native_gangs="pods") as cluster:
        run = BindingRun(cluster, options.bind, options.gangs, seed)
        try:
            faults = run.run()
        finally:
            if options.logs is not None:
                shutil.copytree(cluster.folder / "logs", options.logs, dirs_exist_ok=True)
    for line in run.summary:
        announce(line)
    for fault in faults:
        print(f"FAULT: {fault}")
    print(f"{len(faults)} faults; seed {seed}" if faults else f"No fault; seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
