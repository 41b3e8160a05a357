"""Texts that are no manifests, or odd ones: an answer or a sentence, soon, and never a traceback."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.ui.scenes import COUNTING, SETTINGS, cluster_of, page_of, scene_of
from webhook.inquiry import documents
from webhook.inquiry.documents import InputError
from webhook.ui.whatif import MOST_VALUES, WhatIfChange, of_manifest

SCENE = scene_of(cluster_of([]))
SLICES = {keys.SLICE_SIZE_ANNOTATION: "x", keys.SLICE_TOPOLOGY_ANNOTATION: "host"}

UNUSUAL = {
    "a list of a number": "kind: PodList\nitems: [1]",
    "a plain list of a number": "kind: List\nitems: [1]",
    "a kind that is null": "kind: null",
    "a kind that is a list": "kind: [Pod]",
    "a spec that is a list": "kind: Job\nmetadata: {name: x}\nspec: [1]",
    "metadata that is a list": "kind: Pod\nmetadata: [1]",
    "parts that are text": "kind: JobSet\nmetadata: {name: x}\nspec: {replicatedJobs: [a]}",
    "a part's template that is text": "kind: JobSet\nspec: {replicatedJobs: [{template: a}]}",
    "an integer of 5,000 digits": f"kind: Job\nspec: {{parallelism: {'9' * 5000}}}",
    "a document within itself": "&a {kind: Pod, metadata: {name: x}, spec: *a}",
    "a mapping that merges itself": "&a {kind: Pod, <<: *a}",
    "mappings that merge each other": "&a {kind: Pod, x: &b {<<: *a}, <<: *b}",
    "a merge of text": "kind: Pod\n<<: x",
    "a tag that does not suit": "kind: Pod\nx: !!bool maybe",
    "a set": "kind: Pod\nx: !!set {a}",
    "bytes": "kind: Pod\nx: !!binary aGk=",
    "a key that is a list": "? [a]\n: c\nkind: Pod",
    "a wish that is none": json.dumps({"kind": "Pod", "metadata": {"annotations": SLICES}}),
    "replicas without pods, ever so many": "kind: JobSet\nspec: {replicatedJobs: [{replicas: 999999999999, "
    "template: {spec: {parallelism: 0, template: {}}}}]}",
    "expressions that are a number": json.dumps(
        {
            "kind": "Pod",
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"matchLabelKeys": ["a"], "labelSelector": {"matchExpressions": 5}}
                        ]
                    }
                }
            },
        }
    ),
}


@pytest.fixture(scope="module")
def page() -> FlaskClient:
    return page_of(SCENE)


@pytest.mark.parametrize("what", UNUSUAL)
def test_an_unusual_text_is_refused_with_a_sentence(page: FlaskClient, what: str) -> None:
    answer = page.post("/api/what-if", json={"manifest": UNUSUAL[what]})
    assert answer.status_code == 400
    assert len(json.loads(answer.data)["error"]) > 10


def merging(depth: int) -> str:
    """A text of some hundred bytes whose merge keys name 10 to the power of `depth` pairs."""
    lines = ["kind: Pod", "a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, depth + 1)]
    return "\n".join(lines)


def wide(names: int, pairs: int) -> str:
    """One mapping that merges another one ever so often."""
    mapping = ", ".join(f"k{n}: v" for n in range(pairs))
    return f"kind: Pod\na: &a {{{mapping}}}\nb: {{<<: [{', '.join(['*a'] * names)}]}}"


@pytest.mark.parametrize("text", [merging(9), wide(5_000, 1_000)], ids=["deep", "wide"])
def test_merge_keys_that_stand_for_a_huge_document_are_refused_before_they_are_multiplied(text: str) -> None:
    with pytest.raises(InputError, match="more than 262144 values"):
        list(documents.of_text(text, "the manifest", MOST_VALUES))


def test_many_large_pods_of_a_short_text_are_refused_before_they_are_made() -> None:
    containers = [{"name": f"c{number}", "ports": [{"hostPort": number}]} for number in range(300)]
    job = {"parallelism": 20_000, "template": {"spec": {"containers": containers}}}
    with pytest.raises(InputError, match="more than 1000000 values in total"):
        ask(json.dumps({"kind": "Job", "metadata": {"name": "x"}, "spec": job}))


def test_merge_keys_are_read_as_pyyaml_reads_them() -> None:
    text = (
        "kind: Pod\na: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\n"
        "c: {<<: [*a, *b], z: 3}\nd: {x: 0, <<: *a}\ne: {<<: {x: 5}}\nf: &f {<<: *a, q: 1}\ng: {<<: *f}\n=: 1"
    )
    assert list(documents.of_text(text, "the manifest")) == [yaml.safe_load(text)]


VALUES: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
NAMES = st.sampled_from(
    [
        "kind",
        "metadata",
        "spec",
        "items",
        "template",
        "replicatedJobs",
        "replicas",
        "parallelism",
        "completions",
        "containers",
        "name",
        "labels",
        "annotations",
        "resources",
        "requests",
        "limits",
        "nvidia.com/gpu",
        "cpu",
        "affinity",
        "podAntiAffinity",
        "labelSelector",
        "ports",
        "hostNetwork",
        "initContainers",
        "nodeSelector",
        "tolerations",
        "topologyKey",
        "matchExpressions",
    ]
) | st.sampled_from(sorted(SLICES))
ANYTHING = st.recursive(
    VALUES | st.floats(allow_nan=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["Pod", "Job", "JobSet", "Deployment", "StatefulSet", "List", "PodList", "JobList", "X"]
)
OBJECTS = st.builds(
    lambda kind, fields: {"kind": kind, "metadata": {"name": "x"}, **fields},
    KINDS,
    st.dictionaries(st.sampled_from(["metadata", "spec", "items", "kind", "status"]), ANYTHING, max_size=4),
)
TEXTS = (
    st.builds(lambda write, document: write(document), st.sampled_from([json.dumps, yaml.safe_dump]), OBJECTS)
    | st.text(alphabet="kind: Pod\n{}[],&*a<!?-'\"%#|>0", max_size=60)
    | st.builds(
        lambda a, b: f"kind: Job\nspec: {a}\nmetadata: {b}", st.text(max_size=20), st.text(max_size=20)
    )
)


def ask(text: str) -> None:
    of_manifest(text, SCENE, SETTINGS, WhatIfChange(), COUNTING)


def read(text: str) -> None:
    list(documents.of_text(text, "the manifest"))


@pytest.mark.parametrize("use", [ask, read])
@settings(max_examples=150)
@given(text=TEXTS)
def test_whatever_the_text_there_is_an_answer_or_a_sentence(use: Callable[[str], None], text: str) -> None:
    with contextlib.suppress(InputError):
        use(text)
