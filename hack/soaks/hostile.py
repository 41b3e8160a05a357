"""What a tenant writes who would hurt others: kinds of pods and objects that were found to, drawn by chance.

What is drawn depends on the choices alone, so that a seed draws the same again.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hack.local.pods import GPUS, RUN_FOR, Json
from labeler.contract import keys
from webhook.workloads import marks

HIGHEST: Final = "gpu-low-priority"
LINES: Final = "x\n2026-01-01T00:00:00Z INFO placed gang=other\x1b[2J\r\u202e"


@dataclass(frozen=True)
class Written:
    """One object to create. path: below /apis or /api and the namespace, with {namespace} in it."""

    path: str
    body: Json


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PODS: Final = "/api/v1/namespaces/{namespace}/pods"
JOBS: Final = "/apis/batch/v1/namespaces/{namespace}/jobs"
_PLACEMENTS: Final = "/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"


class Drawing:
    """Draws what is written next."""

    def __init__(self, choices: random.Random, nodes: Sequence[str], others: Sequence[str]) -> None:
        """nodes: names to aim at; others: names of the gangs of other tenants."""
        self._random = choices
        self._nodes = nodes
        self._others = others
        self._number = 0
        self._left: list[Callable[[], list[Written]]] = []
        self._kinds: tuple[Callable[[], list[Written]], ...] = (
            self.contradicts, self.waits_for_another_scheduler, self.claims_cards, self.plans_for_others,
            self.has_many_gates, self.joins_another_gang, self.has_made_up_parents, self.counts_oddly,
            self.writes_lines, self.ends_soon, self.asks_for_much, self.lacks_a_volume, self.may_remain,
            self.opts_out, self.binds_itself, self.is_a_job, self.claims_a_class, self.keeps_others_off,
        )  # fmt: skip

    def draw(self) -> tuple[str, list[Written]]:
        """The name of what is done, and its objects. Each kind comes once before any comes again."""
        self._number += 1
        if not self._left:
            self._left = self._random.sample(self._kinds, len(self._kinds))
        kind = self._left.pop()
        return kind.__name__, kind()

    # --- what is drawn --------------------------------------------------------------------------

    def contradicts(self) -> list[Written]:
        """Required terms of which each names another node, or that no node meets."""
        one, two = self._random.sample(self._nodes, 2)
        forms: list[list[Json]] = [
            [_field(one), _field(two)],
            [{"matchFields": [*_field(one)["matchFields"], *_field(two)["matchFields"]]}],
            [_field(one), {}],
            [_field(one, two)],
        ]
        return [self._pod(affinity=_required(self._random.choice(forms)))]

    def waits_for_another_scheduler(self) -> list[Written]:
        return [self._pod(schedulerName="nobody") for _ in range(self._random.choice((1, 3)))]

    def claims_cards(self) -> list[Written]:
        cards = {
            keys.GAS_CARDS_ANNOTATION: self._random.choice(("card0", "card0,card1|card0", "\x00", "card99")),
            keys.GAS_TILES_ANNOTATION: "card0:gt0+gt1",
            keys.GAS_TIMESTAMP_ANNOTATION: self._random.choice(("1", "9" * 19, "-1", "0x1")),
        }
        some = {key: value for key, value in cards.items() if self._random.random() < 0.7}
        return [self._pod(some, resources={"cpu": "1m"}), self._pod(some)]

    def plans_for_others(self) -> list[Written]:
        entry = {"name": "p", "uid": "0" * 8, "node": self._random.choice(self._nodes), "rank": 0}
        name = self._random.choice(self._others)
        body = {
            "apiVersion": "topogate.io/v1alpha1",
            "kind": "Placement",
            "metadata": {"name": f"job-{name}-{self._random.randrange(16**8):08x}"},
            "spec": {"gang": name, "pods": [entry], "preempts": True},
        }
        return [Written(_PLACEMENTS, body)]

    def has_many_gates(self) -> list[Written]:
        count = self._random.choice((2, 63, 64, 65, 800))
        more = [{"name": f"{keys.GATE_PREFIX}{number}"} for number in range(count - 1)]
        foreign = [{"name": "of.mallory/never"}] if self._random.random() < 0.5 else []
        return [self._pod(schedulingGates=[{"name": keys.GATE}, *more[len(foreign) :], *foreign])]

    def joins_another_gang(self) -> list[Written]:
        """A pod that runs on CPU with a high class, and one that waits, in the name of another's gang."""
        name = self._random.choice(self._others)
        _, key, own = self._random.choice(marks.GANG_LABELS)
        labels = {key: name, own: name}
        runs = self._pod(
            resources={"cpu": "1m"}, gated=False, labels=labels, priorityClassName="gpu-high-priority"
        )
        return [runs, self._pod({keys.GANG_ANNOTATION: name}, labels=labels), self._pod(labels=labels)]

    def has_made_up_parents(self) -> list[Written]:
        group, kind = self._random.choice(
            (
                ("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet"), ("apps/v1", "DaemonSet"),
                ("v1", "Node"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), ("x.y/v1", "Z"),
            )
        )  # fmt: skip
        owner = {
            "apiVersion": group,
            "kind": kind,
            "name": self._random.choice(self._others),
            "uid": "00000000",
            "controller": True,
        }
        labels = {marks.JOBSET_NAME_LABEL: "made-up", marks.REPLICATED_JOB_LABEL: "leader"}
        exclusive = {marks.JOBSET_EXCLUSIVE: self._random.choice(("zone", "", keys.HOSTNAME_LABEL))}
        return [self._pod(exclusive, labels=labels, ownerReferences=[owner])]

    def counts_oddly(self) -> list[Written]:
        unusual = ("0", "-1", "1e9", "9" * 30, "٣", " 2", "1000000", "2", "")
        names = (
            *marks.GANG_SIZE_KEYS, keys.GANG_MIN_SIZE_ANNOTATION, keys.SLICE_SIZE_ANNOTATION,
            keys.SPREAD_TOPOLOGY_ANNOTATION, marks.JOB_INDEX_KEY, marks.JOB_INDEX_FAILURES_ANNOTATION,
            "job-completion-index",
        )  # fmt: skip
        values = {name: self._random.choice(unusual) for name in names if self._random.random() < 0.4}
        values[keys.GANG_ANNOTATION] = f"odd-{self._number % 5}"
        return [self._pod(values) for _ in range(self._random.choice((1, 2, 3)))]

    def writes_lines(self) -> list[Written]:
        names = (
            keys.GANG_ANNOTATION, keys.REQUIRED_TOPOLOGY_ANNOTATION, keys.PREFERRED_TOPOLOGY_ANNOTATION,
            keys.GPU_MODEL_ANNOTATION, keys.SLICE_TOPOLOGY_ANNOTATION, keys.PRIORITY_ANNOTATION,
        )  # fmt: skip
        text = self._random.choice((LINES, LINES * 2000, "\ufeff", "block"))
        return [self._pod({self._random.choice(names): text})]

    def ends_soon(self) -> list[Written]:
        return [self._pod(activeDeadlineSeconds=self._random.choice((1, 2, 600, 2**31 - 1)))]

    def asks_for_much(self) -> list[Written]:
        """A gang that waits, and would hold nodes."""
        name, size = f"much-{self._number}", self._random.choice((2, 100))
        values = {
            keys.GANG_ANNOTATION: name,
            keys.GANG_SIZE_ANNOTATION: str(size),
            keys.REQUIRED_TOPOLOGY_ANNOTATION: self._random.choice(("host", "subblock", "block")),
        }
        return [self._pod(values, resources={GPUS: self._random.choice(("8", "9", "4"))}) for _ in range(2)]

    def lacks_a_volume(self) -> list[Written]:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}
        return [self._pod(volumes=[volume])]

    def may_remain(self) -> list[Written]:
        """Pods that stay when they are deleted."""
        more: Json = self._random.choice(({"schedulerName": "nobody"}, {}))
        return [self._pod(finalizers=["of.mallory/never"], **more)]

    def opts_out(self) -> list[Written]:
        return [self._pod({keys.INJECT_ANNOTATION: "false"}, gated=self._random.random() < 0.3)]

    def binds_itself(self) -> list[Written]:
        """To a node by name, on CPU; or pinned, past the gates."""
        node = self._random.choice(self._nodes)
        bound = self._pod(resources={"cpu": "1m"}, gated=False, nodeName=node)
        return [bound, self._pod(gated=False, affinity=_required([_field(node)]))]

    def is_a_job(self) -> list[Written]:
        size = self._random.choice((1, 2, 4))
        template = self._pod(labels={"a": "b"}).body
        del template["metadata"]["name"]
        spec = {
            "completions": size,
            "parallelism": size,
            "backoffLimit": self._random.choice((0, 6)),
            "activeDeadlineSeconds": self._random.choice((3, 1000)),
            "template": template,
        }
        return [Written(JOBS, {"metadata": {"name": f"job-{self._number}"}, "spec": spec})]

    def claims_a_class(self) -> list[Written]:
        classes = ("system-cluster-critical", "system-node-critical", "gpu-high-priority", HIGHEST)
        chosen = self._random.choice(classes)
        return [
            self._pod(priorityClassName=chosen),
            self._pod({keys.INJECT_ANNOTATION: "false"}, gated=False, priorityClassName=chosen),
            self._pod({keys.PRIORITY_ANNOTATION: "high"}),
        ]

    def keeps_others_off(self) -> list[Written]:
        """What asks for a host's port, or has a rule that no node meets."""
        container = {"ports": [{"containerPort": 1, "hostPort": self._random.choice((1, 8080))}]}
        spread = {"maxSkew": 1, "topologyKey": "nowhere", "whenUnsatisfiable": "DoNotSchedule"}
        affine = {"podAffinity": {_REQUIRED: [{"topologyKey": "nowhere", "labelSelector": {}}]}}
        more = self._random.choice(({"topologySpreadConstraints": [spread]}, {"affinity": affine}, {}))
        return [self._pod(container=container, **more)]

    # --- how ------------------------------------------------------------------------------------

    def _pod(
        self,
        annotations: Json | None = None,
        *,
        resources: Json | None = None,
        gated: bool = True,
        labels: Json | None = None,
        container: Json | None = None,
        **more: Any,
    ) -> Written:
        self._number += 1
        amounts = resources or self._random.choice(
            (
                {GPUS: "1"},
                {GPUS: "2"},
                {GPUS: "4"},
                {keys.I915: "1", keys.MILLICORES: "500"},
                {keys.I915: "1"},
            )
        )
        values = dict(annotations or {})
        if self._random.random() < 0.5:
            values[RUN_FOR] = f"{self._random.randint(1, 5)}s"
        metadata: Json = {key: more.pop(key) for key in ("ownerReferences", "finalizers") if key in more}
        metadata |= {"name": f"evil-{self._number}", "annotations": values, "labels": labels or {}}
        spec: Json = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": self._random.choice((0, 1, 5)),
            "containers": [
                {"name": "c", "image": "x", "resources": {"limits": amounts}, **(container or {})}
            ],
        }
        gates = {"schedulingGates": [{"name": keys.GATE}]} if gated else {}
        return Written(PODS, {"metadata": metadata, "spec": spec | gates | more})


def _field(*names: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}


def _required(terms: list[Json]) -> Json:
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
