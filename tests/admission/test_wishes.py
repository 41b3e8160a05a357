"""Warnings about requests that can never be placed."""

from typing import Any

import pytest

from labeler.contract import keys
from tests.admission.shapes import container, pod
from tests.admission.test_decide import decided
from webhook.admission.wishes import amount

I915, XE, SHARE, TILES = keys.I915, keys.XE, keys.MILLICORES, keys.TILES


def intel(resources: dict[str, Any]) -> dict[str, Any]:
    """A pod whose first container makes it ours, and whose second asks for these Intel resources."""
    return pod(containers=[container("ours", {"nvidia.com/gpu": "1"}), container("c", resources)])


def shared(value: str, *resources: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """A pod with containers c0, c1, ... and a gas-same-gpu wish."""
    return pod(
        annotations={"gas-same-gpu": value, **{k.replace("_", "-"): v for k, v in annotations.items()}},
        containers=[container(f"c{index}", each) for index, each in enumerate(resources)],
    )


def sliced(
    topology: str | None = None, size: str | None = None, gang: str | None = None, required: str | None = None
) -> dict[str, Any]:
    """A pod with a wish for slices."""
    values = {
        keys.SLICE_TOPOLOGY_ANNOTATION: topology,
        keys.SLICE_SIZE_ANNOTATION: size,
        keys.GANG_SIZE_ANNOTATION: gang,
        keys.REQUIRED_TOPOLOGY_ANNOTATION: required,
    }
    return pod(annotations={key: value for key, value in values.items() if value is not None})


WARNED = {
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
    "half a millicore": (intel({I915: "1", SHARE: "500m"}), [f'{SHARE} "500m" is no whole number']),
    "memory without a gpu": (intel({keys.MEMORY_MAX: "1Gi"}), ["gets no GPU"]),
    "gang size zero": (
        pod(annotations={keys.GANG_SIZE_ANNOTATION: "0"}),
        ['"0" is no positive whole number'],
    ),
    "gang size negative": (pod(annotations={keys.GANG_SIZE_ANNOTATION: "-3"}), ['"-3" is no positive']),
    "gang size with a line break": (pod(annotations={keys.GANG_SIZE_ANNOTATION: "3\n"}), ['"3\\x0a" is no']),
    "gang without a name": (pod(annotations={keys.GANG_ANNOTATION: ""}), ["is empty: name the gang"]),
    "required level unknown": (
        pod(annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}),
        ['no level "rack"; known: block, subblock and host'],
    ),
    "preferred level unknown": (pod(annotations={keys.PREFERRED_TOPOLOGY_ANNOTATION: ""}), ['no level ""']),
    "slice level unknown": (
        sliced(topology="rack", size="2"),
        [f'{keys.SLICE_TOPOLOGY_ANNOTATION}: no level "rack"; known'],
    ),
    "slice without a size": (sliced(topology="host"), [f"needs {keys.SLICE_SIZE_ANNOTATION}"]),
    "slice without a level": (sliced(size="2"), [f"needs {keys.SLICE_TOPOLOGY_ANNOTATION}"]),
    "slice size zero": (sliced(topology="host", size="0"), ['"0" is no positive whole number']),
    "slice size with a line break": (sliced(topology="host", size="4\n"), ['"4\\x0a" is no positive']),
    "gang size no multiple of the slices": (
        sliced(topology="host", size="4", gang="9"),
        [f"{keys.GANG_SIZE_ANNOTATION} 9 is no multiple of {keys.SLICE_SIZE_ANNOTATION} 4"],
    ),
    "slices above the required level": (
        sliced(topology="block", size="4", required="host"),
        [f"block lies above {keys.REQUIRED_TOPOLOGY_ANNOTATION} host"],
    ),
    "opt-out misspelt": (pod(annotations={keys.INJECT_ANNOTATION: "no"}), ['to opt out write "false"']),
    "gas-allow empty": (pod(annotations={"gas-allow": ""}), ['gas-allow: "" is no card']),
    "gas-deny with a blank": (
        pod(annotations={"gas-deny": "card0, card1"}),
        ['gas-deny: " card1" is no card'],
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
        [f"must not ask for {TILES}"],
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


@pytest.mark.parametrize("case", WARNED)
def test_the_author_is_warned_of(case: str) -> None:
    made, want = WARNED[case]
    said = decided(made).warnings
    assert len(said) == len(want)
    for warning, words in zip(said, want, strict=True):
        assert words in warning
        assert not warning.endswith("..."), "it was cut"


QUIET = {
    "two gpus with even shares": intel({I915: "2", SHARE: "1000", keys.MEMORY_MAX: "2Gi"}),
    "a tile a gpu": intel({XE: "4", TILES: "4"}),
    "monitoring beside gpus": intel({XE: "3", f"{XE}_monitoring": "1"}),
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


def test_many_warnings_are_cut_to_a_number_that_the_api_server_passes_on() -> None:
    containers = [container(f"c{index}", {SHARE: "1"}) for index in range(50)]
    said = decided(pod(containers=[container("ours", {"amd.com/gpu": "1"}), *containers])).warnings
    assert len(said) == 16
    assert said[-1] == "topogate: and 35 more warnings"


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
    assert amount(quantity) == want
