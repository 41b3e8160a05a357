"""The least that taking a gate away costs kube-apiserver, whoever asks, beside a binding.

On one real control plane, in turns: without any admission policy or webhook, with one policy that looks at
changes of pods and allows all, with one whose match condition no change meets, and with ours. Pods have no
managedFields when they are measured, but those of "binding". The gate alone is removed, or with it the pod is
pinned to a node; by a JSON Patch, or by a whole new object in JSON or protobuf, for which nothing is counted
that had to be read. Answers hold metadata only, except where said. CPU and allocations are those of
`hack/bench release`; "release" is the sweeper's own.
"""

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.benchmarks.release import BINDING, WriteCost, Writes, print_table
from hack.local.build import say
from hack.observing import protobuf
from hack.observing.loaded import CLIENTS
from webhook.kube.client import JSON_PATCH, METADATA_ONLY, ApiError
from webhook.kube.objects import Pod

_KINDS: Final = (
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingwebhookconfigurations",
)
_ONE: Final = {
    "matchConstraints": {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
        ]
    },
    "validations": [{"expression": "object.metadata.name == oldObject.metadata.name"}],
}
_NOT_MET: Final = {
    "matchConditions": [{"name": "never", "expression": "object.metadata.name != oldObject.metadata.name"}]
}
_SEEN_SECONDS: Final = 4.0
"""The API server acts by policies as they are, which it looks at every second."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
OURS: Final = "release"


@dataclass(frozen=True)
class Seen:
    """A pod as it is before, in the forms that ways need."""

    pod: Pod
    node: str
    raw: dict[str, Any]
    packed: bytes


class Least(Writes):
    """Ways to take a gate away, under no policies, one, and ours."""

    def measure(self, folder: Path) -> dict[str, list[WriteCost]]:
        """Of each way, under the policies that its name tells, what it cost, by round."""
        self.installation.programs["sweeper"].stop()
        releaser = self._releaser(folder, forgets=False)
        ways: dict[str, Callable[[Seen], object]] = {
            BINDING: lambda seen: self._bind(seen.pod),
            "binding, none kept": lambda seen: self._bind(seen.pod),
            "binding in protobuf": self._bind_packed,
            "JSON Patch, the gate alone": lambda seen: self._patch(seen, []),
            "JSON Patch, pinned": lambda seen: self._patch(seen, [_pin(seen.node)]),
            "JSON Patch, pinned, all answered": lambda seen: self._patch(
                seen, [_pin(seen.node)], "application/json"
            ),
            "JSON Patch, nodeSelector": lambda seen: self._patch(seen, [_select(seen.node)]),
            "PUT in JSON, pinned": self._put,
            "PUT in protobuf, the gate alone": lambda seen: self._put_packed(seen, ""),
            "PUT in protobuf, pinned": lambda seen: self._put_packed(seen, seen.node),
        }
        stages: dict[str, tuple[Callable[[], contextlib.AbstractContextManager[None]], list[str]]] = {
            "": (contextlib.nullcontext, [BINDING, OURS]),
            ", no policies": (self._bare, list(ways)),
            ", one policy": (lambda: self._one(_ONE), [BINDING, "JSON Patch, pinned"]),
            ", one not met": (lambda: self._one(_ONE | _NOT_MET), [BINDING, "JSON Patch, pinned"]),
        }
        found: dict[str, list[WriteCost]] = {}
        with self.cluster.paused("kube-scheduler"), ThreadPoolExecutor(CLIENTS) as pool:
            for number in range(self.options.rounds):
                for stage, (enter, names) in stages.items():
                    with enter():
                        first = number % len(names)
                        for gang, name in enumerate(names[first:] + names[:first]):
                            seen = self._seen(gang, name, pool)
                            does = self._releasing(releaser)
                            if name != OURS:
                                does = functools.partial(_all, pool, ways[name], seen)
                            pods = [each.pod for each in seen]
                            found.setdefault(name + stage, []).append(self._cost(does, pods))
                            self._check(pods[-1], name)
                        self.clear()
                say(f"Round {number + 1}: " + ", ".join(f"{x}: {y[-1].cpu:.2f} ms" for x, y in found.items()))
        releaser.close()
        return found

    def _seen(self, gang: int, name: str, pool: ThreadPoolExecutor) -> list[Seen]:
        pods = self._made(gang, gated=not name.startswith("binding"), opted_out=True)
        empty = [{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]

        def prepare(pod: Pod) -> Seen:
            path = self._path(pod)
            if name != BINDING:
                self.api.request("PATCH", path, body=empty, content_type=JSON_PATCH)
            raw = self.api.json("GET", path)
            packed = self.api.request("GET", path, accept=protobuf.CONTENT_TYPE)
            return Seen(pod, self._node(pod), raw, packed)

        seen = list(pool.map(prepare, pods))
        time.sleep(0.5)
        return seen

    def _check(self, pod: Pod, name: str) -> None:
        """Raises SystemExit where a way does not do what it says."""
        spec = self.api.json("GET", self._path(pod))["spec"]
        is_pinned = self._node(pod) in str(spec)
        if "schedulingGates" in spec or is_pinned == name.endswith("alone"):
            raise SystemExit(f"{name}: pod {pod.metadata.name} is not as it should be")

    # --- ways -----------------------------------------------------------------------------------

    def _bind_packed(self, seen: Seen) -> None:
        """As kube-scheduler does."""
        metadata = seen.pod.metadata
        body = protobuf.binding(metadata.name, metadata.uid, seen.node)
        path = f"{self._path(seen.pod)}/binding"
        form = protobuf.CONTENT_TYPE
        self.api.request("POST", path, body=body, content_type=form, accept=form)

    def _patch(self, seen: Seen, also: Sequence[dict[str, Any]], accept: str = METADATA_ONLY) -> None:
        body = [{"op": "remove", "path": "/spec/schedulingGates"}, *also]
        lax = {"fieldValidation": "Ignore"}
        path = self._path(seen.pod)
        self.api.request("PATCH", path, query=lax, body=body, content_type=JSON_PATCH, accept=accept)

    def _put(self, seen: Seen) -> None:
        spec = {key: value for key, value in seen.raw["spec"].items() if key != "schedulingGates"}
        body = seen.raw | {"spec": spec | {"affinity": _pin(seen.node)["value"]}}
        lax = {"fieldValidation": "Ignore"}
        self.api.request("PUT", self._path(seen.pod), query=lax, body=body, accept=METADATA_ONLY)

    def _put_packed(self, seen: Seen, node: str) -> None:
        body = protobuf.ungated(seen.packed, node)
        path, accept = self._path(seen.pod), protobuf.METADATA_ONLY
        self.api.request("PUT", path, body=body, content_type=protobuf.CONTENT_TYPE, accept=accept)

    # --- policies -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _bare(self) -> Iterator[None]:
        """Take away all policies and webhooks, and put them back."""
        taken = []
        for kind in _KINDS:
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
            try:
                items = self.api.json("GET", path)["items"]
            except ApiError as error:
                if error.status != 404:  # this version has none of that kind
                    raise
                continue
            for each in items:
                name = each["metadata"]["name"]
                self.api.request("DELETE", f"{path}/{name}")
                each["metadata"] = {"name": name, "labels": each["metadata"].get("labels", {})}
                taken.append((path, each))
        time.sleep(_SEEN_SECONDS)
        try:
            yield
        finally:
            for path, each in reversed(taken):
                self.api.request("POST", path, body=each)
            time.sleep(_SEEN_SECONDS)

    @contextlib.contextmanager
    def _one(self, spec: Mapping[str, Any]) -> Iterator[None]:
        """Have one policy."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
        name = {"metadata": {"name": "bench"}}
        binding = {"spec": {"policyName": "bench", "validationActions": ["Deny"]}}
        with self._bare():
            self.api.request("POST", f"{path}ies", body=name | {"spec": spec})
            self.api.request("POST", f"{path}ybindings", body=name | binding)
            time.sleep(_SEEN_SECONDS)
            try:
                yield
            finally:
                self.api.request("DELETE", f"{path}ybindings/bench")
                self.api.request("DELETE", f"{path}ies/bench")


def _all(
    pool: ThreadPoolExecutor, way: Callable[[Seen], object], seen: Sequence[Seen], _: Sequence[Pod]
) -> None:
    list(pool.map(way, seen))


def _pin(node: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {_REQUIRED: required}}}


def _select(node: str) -> dict[str, Any]:
    return {"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/hostname": node}}


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="hack/bench least", description=__doc__)
    parser.add_argument("--pods", type=int, default=100, help="of each way and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.set_defaults(nodes=100, blocks=1, subblocks=1, gangs=1, without_guards=False)
    options = parser.parse_args(argv)
    with Least.fresh(options) as (bench, folder):
        found = bench.measure(folder)
    print_table(found, of=f"{BINDING}, no policies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
