"""Warnings about requests that can never be placed."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.admission.reviews import decided
from tests.admission.shapes import container, owned, pod
from webhook.admission.author_warnings import shown
from webhook.kube import objects
from webhook.scheduling.convert import pod_class_of
from webhook.scheduling.gpu_requests import whole_number

I915, XE, SHARE, TILES = keys.I915, keys.XE, keys.MILLICORES, keys.TILES


def intel(resources: dict[str, Any]) -> dict[str, Any]:
    """A pod whose first container makes it ours, and whose second asks for these Intel resources."""
    return pod(containers=[container("ours", {"nvidia.com/gpu": "1"}), container("c", resources)])


def shared(value: str, *resources: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """A pod with containers c0, c1, ... and a gas-same-gpu annotation."""
    return pod(
        annotations={"gas-same-gpu": value, **{k.replace("_", "-"): v for k, v in annotations.items()}},
        containers=[container(f"c{index}", each) for index, each in enumerate(resources)],
    )


def sliced(
    topology: str | None = None, size: str | None = None, gang: str | None = None, required: str | None = None
) -> dict[str, Any]:
    """A pod that asks for slices."""
    values = {
        keys.SLICE_TOPOLOGY_ANNOTATION: topology,
        keys.SLICE_SIZE_ANNOTATION: size,
        keys.GANG_SIZE_ANNOTATION: gang,
        keys.REQUIRED_TOPOLOGY_ANNOTATION: required,
    }
    return pod(annotations={key: value for key, value in values.items() if value is not None})


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """The affinity of a pod that must run where one of these terms holds."""
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": needed}


def named(*nodes: str, **more: Any) -> dict[str, Any]:
    """A term that names nodes by the field that a release writes."""
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}], **more}


OWN = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
LONG_NAME = "n" * 60

WARNED = {
    "a pin, as a copy of a placed pod has it": (
        pod(affinity=required(named("n1"))),
        ['spec.affinity.nodeAffinity matchFields: only "n1" fits; remove it from a copied pod'],
    ),
    "a pin in each of its own terms": (
        pod(affinity=required(named("n1", **OWN), named("n1"))),
        ['matchFields: only "n1" fits'],
    ),
    "a pin to a node of a long name": (
        pod(affinity=required(named(LONG_NAME))),
        [f'only "{LONG_NAME[:35]}..." fits; remove it from a copied pod'],
    ),
    "a share without a gpu": (
        intel({SHARE: "500"}),
        [f'container "c": {SHARE} without {I915} or {XE} gets no GPU'],
    ),
    "i915 with xe": (intel({I915: "1", XE: "1"}), ["no node offers both"]),
    "a share that does not divide": (
        intel({I915: "2", SHARE: "501"}),
        [f"{SHARE} 501 does not divide by 2 GPUs"],
    ),
    "fewer tiles than gpus": (
        intel({XE: "4", TILES: "2"}),
        ["2 tiles for 4 GPUs; ask for at least one tile a GPU"],
    ),
    "tiles that do not divide": (intel({XE: "2", TILES: "3"}), [f"{TILES} 3 does not divide by 2 GPUs"]),
    "half a millicore": (intel({I915: "1", SHARE: "500m"}), [f'{SHARE} "500m" is not a whole number']),
    "a share in an init container": (
        pod(initContainers=[container("c", {SHARE: "500"})]),
        [f'init container "c": {SHARE} without {I915} or {XE} gets no GPU'],
    ),
    "a share that does not divide in an init container": (
        pod(initContainers=[container("c", {I915: "2", SHARE: "501"})]),
        [f'init container "c": {SHARE} 501 does not divide by 2 GPUs', f"no container asks for {I915}"],
    ),
    "i915 and xe in two containers": (
        pod(containers=[container("a", {I915: "1"}), container("b", {XE: "1"})]),
        ["containers ask for gpu.intel.com/i915 and gpu.intel.com/xe; no node offers both"],
    ),
    "i915 and xe in an init container and a container": (
        pod(initContainers=[container("a", {I915: "1"})], containers=[container("b", {XE: "1"})]),
        ["containers ask for", f'init container "a": no container asks for {I915}'],
    ),
    "a sidecar that asks for more than its container": (
        pod(
            initContainers=[container("s", {I915: "2"}) | {"restartPolicy": "Always"}],
            containers=[container("c", {I915: "1"})],
        ),
        ['sidecar "s": asks for 2 GPUs of the 1 of container "c"'],
    ),
    "tiles in one container only": (
        pod(containers=[container("a", {I915: "1", TILES: "1"}), container("b", {I915: "1"})]),
        ['container "b" asks for a GPU without tiles, and others ask for tiles'],
    ),
    "a card with a leading zero": (pod(annotations={"gas-allow": "card01"}), ['"card01" is not a card']),
    "a card with another digit": (pod(annotations={"gas-allow": "card\u0661"}), ["is not a card"]),
    "a share and no gpu in the whole pod": (pod({SHARE: "500"}), [f"{SHARE} without {I915} or {XE}"]),
    "memory and no gpu in the whole pod": (pod({keys.MEMORY_MAX: "1Gi"}), ["gets no GPU"]),
    "tiles and no gpu in the whole pod": (pod({TILES: "1"}), ["gets no GPU"]),
    "memory without a gpu": (intel({keys.MEMORY_MAX: "1Gi"}), ["gets no GPU"]),
    "gang size zero": (
        pod(annotations={keys.GANG_SIZE_ANNOTATION: "0"}),
        ['"0" is not a positive whole number'],
    ),
    "gang size negative": (pod(annotations={keys.GANG_SIZE_ANNOTATION: "-3"}), ['"-3" is not a positive']),
    "gang size with a line break": (pod(annotations={keys.GANG_SIZE_ANNOTATION: "3\n"}), ['"3\\x0a" is no']),
    "gang minimum no number": (
        pod(annotations={keys.GANG_MIN_SIZE_ANNOTATION: "half"}),
        [f'{keys.GANG_MIN_SIZE_ANNOTATION}: "half" is not a positive whole number'],
    ),
    "gang minimum above its size": (
        pod(annotations={keys.GANG_MIN_SIZE_ANNOTATION: "9", keys.GANG_SIZE_ANNOTATION: "8"}),
        [f"{keys.GANG_MIN_SIZE_ANNOTATION} 9 is more than {keys.GANG_SIZE_ANNOTATION} 8"],
    ),
    "gang without a name": (pod(annotations={keys.GANG_ANNOTATION: ""}), ["is empty: name the gang"]),
    "required level unknown": (
        pod(annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}),
        ['no level "rack"; known: block, subblock, host and node'],
    ),
    "preferred level unknown": (pod(annotations={keys.PREFERRED_TOPOLOGY_ANNOTATION: ""}), ['no level ""']),
    "a preferred level of several unknown": (
        pod(annotations={keys.PREFERRED_TOPOLOGY_ANNOTATION: "block,rack"}),
        [f'{keys.PREFERRED_TOPOLOGY_ANNOTATION}: no level "rack"; known'],
    ),
    "preferred levels, the finest first": (
        pod(annotations={keys.PREFERRED_TOPOLOGY_ANNOTATION: "subblock,block"}),
        ['"subblock,block": write the coarsest level first'],
    ),
    "a preferred level twice": (
        pod(annotations={keys.PREFERRED_TOPOLOGY_ANNOTATION: "block,block"}),
        ['"block,block" names a level twice'],
    ),
    "a preferred level that the required one decides": (
        pod(
            annotations={
                keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock",
                keys.PREFERRED_TOPOLOGY_ANNOTATION: "block,host",
            }
        ),
        ["block has no effect: it is not below the required subblock"],
    ),
    "slice level unknown": (
        sliced(topology="rack", size="2"),
        [f'{keys.SLICE_TOPOLOGY_ANNOTATION}: no level "rack"; known'],
    ),
    "slice without a size": (sliced(topology="host"), [f"needs {keys.SLICE_SIZE_ANNOTATION}"]),
    "slice without a level": (sliced(size="2"), [f"needs {keys.SLICE_TOPOLOGY_ANNOTATION}"]),
    "slice size zero": (sliced(topology="host", size="0"), ['"0" is not a positive whole number']),
    "slice size with a line break": (sliced(topology="host", size="4\n"), ['"4\\x0a" is not a positive']),
    "gang size no multiple of the slices": (
        sliced(topology="host", size="4", gang="9"),
        [f"{keys.GANG_SIZE_ANNOTATION} 9 is not a multiple of {keys.SLICE_SIZE_ANNOTATION} 4"],
    ),
    "slices in slices of which one has no level": (
        sliced(topology="block,rack", size="4,2"),
        [f'{keys.SLICE_TOPOLOGY_ANNOTATION}: no level "rack"; known'],
    ),
    "slices in slices of which one has no size": (
        sliced(topology="block,host", size="4"),
        [f"{keys.SLICE_SIZE_ANNOTATION} need one size for each level"],
    ),
    "slices in slices that do not divide": (
        sliced(topology="block,host", size="4,3"),
        [f"{keys.SLICE_SIZE_ANNOTATION} 4,3: each size must be a multiple of the next"],
    ),
    "slices above the required level": (
        sliced(topology="block", size="4", required="host"),
        [f"block lies above {keys.REQUIRED_TOPOLOGY_ANNOTATION} host"],
    ),
    "spread over no level": (
        pod(annotations={keys.SPREAD_TOPOLOGY_ANNOTATION: "rack:2"}),
        [f'{keys.SPREAD_TOPOLOGY_ANNOTATION}: no level "rack"; known'],
    ),
    "spread without a number": (
        pod(annotations={keys.SPREAD_TOPOLOGY_ANNOTATION: "block:"}),
        [f'{keys.SPREAD_TOPOLOGY_ANNOTATION}: after the colon "" is not a positive whole number'],
    ),
    "spread of slices": (
        pod(
            annotations={
                keys.SPREAD_TOPOLOGY_ANNOTATION: "block",
                keys.SLICE_TOPOLOGY_ANNOTATION: "host",
                keys.SLICE_SIZE_ANNOTATION: "2",
            }
        ),
        [f"{keys.SPREAD_TOPOLOGY_ANNOTATION} excludes {keys.SLICE_TOPOLOGY_ANNOTATION}"],
    ),
    "spread within one domain": (
        pod(
            annotations={
                keys.SPREAD_TOPOLOGY_ANNOTATION: "block:2",
                keys.REQUIRED_TOPOLOGY_ANNOTATION: "block",
            }
        ),
        [f"block is not below {keys.REQUIRED_TOPOLOGY_ANNOTATION} block"],
    ),
    "opt-out misspelt": (pod(annotations={keys.INJECT_ANNOTATION: "no"}), ['to opt out write "false"']),
    "gas-allow empty": (pod(annotations={"gas-allow": ""}), ['gas-allow: "" is not a card']),
    "gas-deny with a blank": (
        pod(annotations={"gas-deny": "card0, card1"}),
        ['gas-deny: " card1" is not a card'],
    ),
    "gas-same-gpu with one container": (shared("c0", {I915: "1"}), ["two or more different containers"]),
    "gas-same-gpu naming one twice": (shared("c0,c0", {I915: "1"}), ["two or more different containers"]),
    "gas-same-gpu of an unknown container": (shared("c0,zz", {I915: "1"}), ['no container "zz"']),
    "gas-same-gpu with two gpus": (
        shared("c0,c1", {I915: "2"}, {I915: "1"}),
        ['"c0" must ask for exactly 1 GPU'],
    ),
    "gas-same-gpu with tiles": (
        shared("c0,c1", {I915: "1", TILES: "1"}, {I915: "1"}),
        ["without tiles, and others", f"must not ask for {TILES}"],
    ),
    "gas-same-gpu with links": (
        shared("c0,c1", {I915: "2"}, {I915: "2"}, gas_allocate_xelink="true"),
        ["exclude each other", "exactly 1 GPU", "exactly 1 GPU"],
    ),
    "links for an odd count": (
        pod(annotations={"gas-allocate-xelink": ""}, containers=[container("c", {XE: "3"})]),
        ['container "c" asks for 3 GPUs; links join pairs'],
    ),
}


@pytest.mark.promise("R52", "R215", "S1")
@pytest.mark.parametrize("case", WARNED)
def test_the_author_is_warned_of(case: str) -> None:
    made, want = WARNED[case]
    given = decided(made).warnings
    assert len(given) == len(want)
    for warning, words in zip(given, want, strict=True):
        assert words in warning
        assert not warning.endswith("..."), "it was cut"


QUIET = {
    "its own affinity": pod(affinity=required(OWN)),
    "two nodes by name": pod(affinity=required(named("n1", "n2"))),
    "a node or a pool": pod(affinity=required(named("n1"), OWN)),
    "a node or another": pod(affinity=required(named("n1"), named("n2"))),
    "a pin of a pod without a gpu": pod({"cpu": "1"}, affinity=required(named("n1"))),
    "a pod of a DaemonSet": pod(metadata=owned("DaemonSet", "apps/v1"), affinity=required(named("n1"))),
    "affinity that is null": pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}
    ),
    "two gpus with even shares": intel({I915: "2", SHARE: "1000", keys.MEMORY_MAX: "2Gi"}),
    "a tile a gpu": intel({XE: "4", TILES: "4"}),
    "monitoring beside one gpu": intel({XE: "1", f"{XE}_monitoring": "1"}),
    "monitoring beside three gpus, which it is not divided by": intel({XE: "3", f"{XE}_monitoring": "1"}),
    "monitoring alone": pod({f"{XE}_monitoring": "1"}),
    "tiles in all containers": pod(containers=[container(n, {I915: "1", TILES: "1"}) for n in ("a", "b")]),
    "a container without gpus beside one with tiles": pod(
        containers=[container("a", {I915: "1", TILES: "1"}), container("b", {"cpu": "1"})]
    ),
    "shares of nothing": intel({SHARE: "0"}),
    "known levels": pod(annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "host"}),
    "a level by its label": pod(annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: keys.GCE_TOPOLOGY[0]}),
    "slices": sliced(topology="host", size="4", gang="128", required="block"),
    "slices of a node": sliced(topology="node", size="4"),
    "gang size": pod(annotations={keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "128"}),
    "card lists": pod(annotations={"gas-allow": "card0,card11", "gas-deny": "card1"}),
    "one card for two containers": shared("c0,c1", {I915: "1"}, {I915: "1"}),
    "links for pairs": pod(
        annotations={"gas-allocate-xelink": "true"}, containers=[container("c", {XE: "2"})]
    ),
    "opting in": pod(annotations={keys.INJECT_ANNOTATION: "true"}),
}


@pytest.mark.parametrize("case", QUIET)
def test_nobody_is_warned_of(case: str) -> None:
    assert decided(QUIET[case]).warnings == ()


_asked = st.dictionaries(
    st.sampled_from([I915, XE, SHARE, TILES, keys.MEMORY_MAX, f"{I915}_monitoring", "cpu"]),
    st.integers(0, 4).map(str),
    max_size=4,
)
_notes = st.dictionaries(
    st.sampled_from([keys.GAS_SAME_GPU_ANNOTATION, keys.GAS_XELINK_ANNOTATION, keys.GAS_ALLOW_ANNOTATION]),
    st.sampled_from(["c0,c1", "c0", "c0,c9", "c1,c1", "card0", ""]),
    max_size=2,
)


@pytest.mark.promise("R52")
@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(_asked, min_size=1, max_size=3), _notes)
def test_a_pod_that_the_sweeper_will_refuse_is_warned_of(
    asked: list[dict[str, str]], annotations: dict[str, str]
) -> None:
    """One module has the rules; admission and the sweeper read a pod each in its own way."""
    made = pod(annotations=annotations, containers=[container(f"c{n}", each) for n, each in enumerate(asked)])
    made["metadata"]["name"] = "p"
    refused = pod_class_of(msgspec.json.decode(json.dumps(made), type=objects.Pod)).problem
    if refused:
        assert decided(made).warnings, refused


def test_a_share_without_a_gpu_is_warned_of_although_the_pod_is_left_alone() -> None:
    decision = decided(pod({SHARE: "500"}))
    assert (decision.outcome, decision.reason) == ("left-alone", "no-gpu")
    assert decision.warnings


@pytest.mark.parametrize("quantity", [0, "0", "0k"])
def test_a_request_of_no_gpu_makes_no_gpu_pod(quantity: int | str) -> None:
    decision = decided(pod({"nvidia.com/gpu": quantity}))
    assert (decision.outcome, decision.reason) == ("left-alone", "no-gpu")


@pytest.mark.parametrize(("length", "end"), [(120, "x"), (121, "...")])
def test_a_warning_is_cut_to_the_length_that_the_api_server_recommends(length: int, end: str) -> None:
    (warning,) = shown(["x" * length])
    assert len(warning) == 120
    assert warning.endswith(end)


def test_many_warnings_are_cut_to_a_number_that_the_api_server_passes_on() -> None:
    containers = [container(f"c{index}", {SHARE: "1"}) for index in range(50)]
    warnings = decided(pod(containers=[container("ours", {"amd.com/gpu": "1"}), *containers])).warnings
    assert len(warnings) == 16
    assert warnings[-1] == "topogate: and 35 more warnings"


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        ("1", 1),
        ("1k", 1000),
        ("2Ki", 2048),
        ("1e3", 1000),
        ("1000m", 1),
        ("500m", None),
        ("0.5", None),
        ("", None),
        ("x", None),
        ("0" * 50, None),
        (3, 3),
        (2.0, 2),
        (2.5, None),
        ("-1", -1),
    ],
)
def test_amounts_are_whole_numbers_or_none(quantity: str | int | float, want: int | None) -> None:
    assert whole_number(quantity) == want
