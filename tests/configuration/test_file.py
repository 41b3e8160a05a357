"""The configuration: what it means, and that every fault is named by its path."""

import json
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.references import rows
from labeler.contract import keys
from tests.admission.harness import MANIFESTS, shipped_configuration
from tests.configuration.wrong import HEAD, MODEL, TIERS, WRONG_AFTER_HEAD
from webhook.configuration import schema
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import Configuration, parse
from webhook.configuration.schema import SCHEMA
from webhook.configuration.settings import Avoid, BadNodes, MoveLimits, ScaleUp, Settings, SpareNodes
from webhook.durations import duration_text, seconds_of
from webhook.extensions.fair_order.scores import PROJECTED
from webhook.extensions.node_health import failing_nodes
from webhook.kube.plan_pods import PLAIN_PODS
from webhook.placement import Mode, Options
from webhook.policy.fair import HOUR, FairOrder
from webhook.policy.values import (
    DEFAULT_EXCLUDED_NAMESPACES,
    DEFAULT_GPU_RESOURCES,
    Policy,
    normal_model_name,
)
from webhook.sweeper.decide.refusing_nodes import AVOID_SECONDS
from webhook.sweeper.extension import RecordSpec
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.repair.repair import STAYS_SECONDS
from webhook.workloads.pod_sets import MOST_PODS


def faults_of(text: str) -> list[str]:
    """The faults of a configuration, none if it is taken."""
    try:
        parse(text)
    except ConfigurationError as error:
        return error.faults
    return []


# --- defaults -----------------------------------------------------------------------------------------


@pytest.mark.promise("R2")
def test_the_shipped_configuration_is_whole() -> None:
    found = parse(shipped_configuration())
    assert {*found.settings.gpu_resources} == {*DEFAULT_GPU_RESOURCES}
    assert replace(found.settings, gpu_resources=DEFAULT_GPU_RESOURCES) == Settings()
    assert found.policy.gate == keys.GATE
    assert [tier.name for tier in found.policy.tiers] == ["low", "medium", "high"]
    shipped = yaml.safe_load_all((MANIFESTS / "priorityclasses.yaml").read_text())
    assert {tier.priority_class_name for tier in found.policy.tiers} == {
        each["metadata"]["name"] for each in shipped
    }


@pytest.mark.promise("O83")
def test_the_shortest_configuration_gates_the_usual_gpus_and_changes_no_default() -> None:
    found = parse(HEAD)
    assert found.policy == Policy()
    assert found == Configuration()
    for resource in ("nvidia.com/gpu", "amd.com/gpu", keys.I915, keys.XE, "nvidia.com/mig-1g.10gb"):
        assert found.policy.is_gpu_resource(resource)
    assert not found.policy.is_gpu_resource("nvidia.com/gpu.shared.other")


def test_a_default_that_is_written_down_changes_nothing() -> None:
    document = {
        name: value for name, value in schema.DEFAULTS.items() if name not in ("fairOrder", "makeRoom")
    }
    written = json.loads(
        json.dumps(document), object_hook=lambda each: {k: v for k, v in each.items() if v != ""}
    )
    assert parse(json.dumps(written)) == Configuration()


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("", MoveLimits()),
        ("makeRoom: {}", MoveLimits(is_on=True)),
        ("makeRoom: {after: 1m, movesPerHour: 3, movesPerGangAndDay: 1}", MoveLimits(True, 60, 3, 1)),
    ],
)
def test_gangs_are_moved_only_where_the_configuration_asks_for_it(section: str, found: MoveLimits) -> None:
    assert parse(f"{HEAD}{section}").settings.moves == found


DEFAULTS = {
    "settings.options.mode": Mode.BEST_FIT,
    "settings.bind_seconds": 120,
    "settings.abandon_seconds": 3600,
    "settings.reserve_seconds": 300,
    "settings.reserve_hold_seconds": 1800,
    "settings.reserve_share": 0.5,
    "settings.broken_seconds": 30,
    "settings.preempt": True,
    "settings.repair": True,
    "settings.start_with_fewer": False,
    "settings.keep_managed_fields": False,
    "settings.scheduler_names": ("default-scheduler",),
    "settings.gpu_device_classes": {"*gpu*"},
    "settings.bad_nodes": BadNodes(Avoid.SOFT, 3, 600, 10, 3600, 86400, 0.1),
    "settings.spare_nodes.per_block": 0,
    "settings.moves": MoveLimits(False, 600, 10, 2),
    "settings.scale_up": ScaleUp("", {}, 10, 1000, 5, 60, 120),
    "policy.fair_order": None,
    "policy.adopts_native_gangs": True,
    "policy.binds_by_pod_group": False,
}


@pytest.mark.promise("O60", "O83", "O191")
def test_a_default_is_that_of_the_docs() -> None:
    assert {path: attrgetter(path)(Configuration()) for path in DEFAULTS} == DEFAULTS


@pytest.mark.promise("O65", "O79", "O93", "O90", "O96", "O98", "O148", "O327")
def test_a_number_that_nobody_sets_is_that_of_the_docs() -> None:
    assert AVOID_SECONDS == 600, "a pod of the same controller was refused within ten minutes"
    assert ENDING_SECONDS == 600, "victims have taken ten minutes to end"
    assert STAYS_SECONDS == 30, "what cannot be deleted keeps cards from nobody after half a minute"
    assert MOST_PODS == 5000, "larger gangs are planned by the pods that are there"
    assert RecordSpec("any").seconds == 60, "use is written once a minute"
    assert PROJECTED == 1 / 8, "what an account has counts for an eighth of the half-life"
    assert failing_nodes.MOST == 1000, "failures that are kept"
    assert PLAIN_PODS == 2000, "larger plans are packed"


# --- meaning ------------------------------------------------------------------------------------------


@pytest.mark.promise("O21", "O83")
def test_each_kind_of_key_is_taken() -> None:
    found = parse(
        HEAD + "gangs: {settle: 1m30s, labels: [app.kubernetes.io/instance, name],\n"
        "  owners: [Workflow.argoproj.io], looseOwners: [Flow.example.com, Thing], native: leave}\n"
        "repair: {enabled: false}\nnamespaces: {excluded: [a, b]}\ngatePrefix: example.com/wait-\n"
        "placement: {mode: headroom, weights: {cpu: 0, nvidia.com/gpu: 5}}\n"
        "topology: {levels: {pod: [example.com/pod], rack: example.com/rack}}\n"
        "nodeHealth: {avoid: off, failures: 2, share: 0.25}\nspareNodes: {perBlock: 2, lastResort: true}\n"
        "binding: {mode: podgroup, timeout: 500ms}\nscaleUp: {provisioningClass: c.example.com}\n"
        "fairOrder: {}\nadmission: {keepManagedFields: true}\n"
    )
    own, policy = found.settings, found.policy
    assert own.owner_rules.gang_owners == {"Workflow.argoproj.io"}
    assert own.owner_rules.loose_owners == {"Flow.example.com", "Thing"}
    assert own.gang_labels == ("app.kubernetes.io/instance", "name")
    assert (own.settle_seconds, own.bind_seconds, own.repair) == (90.0, 0.5, False)
    weights = {"cpu": 0, "nvidia.com/gpu": 5}
    assert own.options == Options(mode=Mode.HEADROOM, weights=weights)
    assert own.topology.families == (("example.com/pod", "example.com/rack"),)
    assert own.bad_nodes == BadNodes(avoid=Avoid.OFF, failures=2, share=0.25)
    assert own.spare_nodes == SpareNodes(2, if_nothing_else_fits=True)
    assert own.scale_up == ScaleUp("c.example.com")
    assert (policy.adopts_native_gangs, policy.binds_by_pod_group) == (False, True)
    assert policy.fair_order == FairOrder(6 * HOUR, 12 * HOUR)


@pytest.mark.promise("O83")
def test_a_fact_that_several_programs_need_is_set_once() -> None:
    found = parse(
        HEAD + "gatePrefix: example.com/wait-\nschedulerNames: [a]\nnamespaces: {excluded: [b]}\n"
        "gpus: {resources: [c.io/d], deviceClasses: [e]}\ntopology: {levels: {f: x.io/f, g: x.io/g}}\n"
        "admission: {keepManagedFields: true}\n"
    )
    own, policy = found.settings, found.policy
    assert (own.gate_prefix, policy.gate_prefix) == ("example.com/wait-", "example.com/wait-")
    assert policy.gate == "example.com/wait-topogate"
    assert own.scheduler_names == policy.scheduler_names == ("a",)
    assert own.excluded_namespaces == policy.excluded_namespaces == {"b", *DEFAULT_EXCLUDED_NAMESPACES}
    assert own.gpu_resources == policy.gpu_resources == ("c.io/d",)
    assert (sorted(own.gpu_device_classes), policy.device_classes) == (["e"], ("e",))
    assert policy.resource_claims
    assert (own.topology.level_names, policy.topology_levels) == (("f", "g"), ("f", "g"))
    assert (own.keep_managed_fields, policy.keep_managed_fields) == (True, True)


def test_a_star_stands_for_every_claim_and_metrics_count_the_usual_classes() -> None:
    found = parse(HEAD + "gpus: {deviceClasses: ['*']}\n")
    assert (found.policy.takes_every_class, found.policy.resource_claims) == (True, True)
    assert found.settings.gpu_device_classes == {"*gpu*"}


def test_labels_of_the_catalogue_name_models_in_metrics_and_on_the_page() -> None:
    assert "a.io/b" in parse(HEAD + MODEL).counting.model_labels


def test_a_label_may_have_the_longest_prefix_that_there_is() -> None:
    key = "a" * 253 + "/b"
    assert parse(HEAD + f"models: [{{name: a, labels: {{{key}: ''}}}}]\n").policy.gpu_models[0].labels == {
        key: ""
    }


def test_a_padded_model_is_not_taken_for_the_model_that_it_begins_with() -> None:
    policy = parse(HEAD + "models: [{name: RTX 4090, labels: {a: b}}]\n").policy
    assert policy.gpu_model("RTX 4090" + " " * 92) is not None
    assert policy.gpu_model("RTX 4090" + " " * 95 + "SUPER") is None


@pytest.mark.promise("R41")
def test_models_are_found_whatever_the_case_and_punctuation() -> None:
    policy = parse(HEAD + "models: [{name: RTX 4090, aliases: [Ada-24G], labels: {a: b}}]\n").policy
    for name in ("RTX 4090", "rtx-4090", "rtx_4090", "RTX4090", "ada 24g"):
        found = policy.gpu_model(name)
        assert found is not None
        assert found.name == "RTX 4090"
    assert policy.gpu_model("RTX 4080") is None
    assert policy.nearest_model_names("RTX 4080") == ["RTX 4090"]


def test_a_namespace_without_an_entry_follows_the_star() -> None:
    rules = '{"*": {maximumTier: low}, a: {maximumTier: mid}, b: {}}'
    policy = parse(f"{HEAD}{TIERS}namespaces: {{rules: {rules}}}\n").policy
    assert policy.allowed_tiers("other") == ("low",)
    assert policy.allowed_tiers("a") == ("low", "mid")
    assert policy.allowed_tiers("b") == ("low", "mid", "high")


def test_a_namespaces_default_model_may_be_written_as_in_a_pods_annotation() -> None:
    policy = parse(HEAD + MODEL + "namespaces: {rules: {a: {defaultModel: h-100}}}\n").policy
    assert policy.rules("a").default_gpu_model == "H100"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("1500ms", 1.5)])
def test_a_duration_is_that_of_kubernetes(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**9))
def test_a_duration_that_is_written_is_read_as_it_was(milliseconds: int) -> None:
    assert round(seconds_of(duration_text(milliseconds / 1000)) * 1000) == milliseconds


# --- faults -------------------------------------------------------------------------------------------

WRONG = {
    "": "apiVersion: is missing; write topogate.io/v1beta1",
    "{}": "kind: is missing; write Configuration",
    "- a": "document: must be a mapping, not a list",
    "x": "document: must be a mapping, not text",
    "a: [": "line 1, column 5",
    "a: b\n---\na: c\n": "line 2, column 1: expected a single document in the stream, but found another",
    "apiVersion: v1\nkind: Configuration\n": "apiVersion: must be topogate.io/v1beta1, not 'v1'",
    "apiVersion: topogate.io/v1beta1\n": "kind: is missing; write Configuration",
    f"apiVersion: 0x{'9' * 9000}\n": "not a number",
    f"apiVersion: {'v' * 5000}\n": f"not '{'v' * 80}...'",
    "[" * 20_000: "document: is nested too deeply",
    "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10)): (
        "line 6, column 5: has more than 10,000 keys"
    ),
    '"\\ud800\\n": 1\n': "\\ud800\\x0a: unknown key",
}
"""Whole documents, and a part of their fault."""


@pytest.mark.promise("O52")
def test_a_fault_is_named_by_its_path() -> None:
    cases = WRONG | {HEAD + text + "\n": words for text, words in WRONG_AFTER_HEAD.items()}
    found = {
        text[-200:]: faults_of(text)
        for text, words in cases.items()
        if words not in "\n".join(faults_of(text))
    }
    assert found == {}


def test_a_number_is_to_be_quoted_only_in_the_place_of_a_text() -> None:
    found = faults_of(HEAD + "spareNodes: {perBlock: 2.0}\nmodels: [{name: 4090, labels: {a: b}}]\n")
    assert [each.endswith("; quote it") for each in found] == [False, True]


@pytest.mark.promise("O52")
def test_all_faults_are_named_at_once() -> None:
    found = faults_of(
        HEAD
        + "tiers: [{name: a}]\nnamespaces: {rules: {b: {maximumTier: c}}}\nlevels: []\nrepair: {enabled: 1}\n"
    )
    assert [fault.split(":")[0] for fault in found] == [
        "tiers[0].priorityClassName",
        "levels",
        "repair.enabled",
        "namespaces.rules.b.maximumTier",
    ]


def test_each_nameless_tier_has_one_fault() -> None:
    found = faults_of(HEAD + "tiers: [{priorityClassName: l}, {priorityClassName: m}]\n")
    assert found == ["tiers[0].name: is missing", "tiers[1].name: is missing"]


_NAMES = [
    *dict.fromkeys(part for path, *_ in rows() for part in path.replace("[]", "").split(".")),
    "*",
]
_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
_documents = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def is_taken_or_has_faults(text: str | bytes) -> bool:
    try:
        parse(text)
    except ConfigurationError as error:
        return bool(error.faults) and all(fault.strip() for fault in error.faults)
    return True


@settings(max_examples=400, deadline=None, derandomize=True)
@given(_documents)
def test_any_document_is_taken_or_has_faults(document: Any) -> None:
    assert is_taken_or_has_faults(yaml.safe_dump(document))
    if isinstance(document, dict):
        assert is_taken_or_has_faults(HEAD + yaml.safe_dump(document))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_are_taken_or_have_faults(text: bytes | str) -> None:
    assert is_taken_or_has_faults(text)


_SCALARS = """a '' ~ 1 2024-13-45 {{.Values.x}} !!bool_maybe !!int_'' !!timestamp_x *a !!set_{a} !!binary_x
!!omap_[a] &a_[*a] &a_{b:_*a} "\\ud800" [[a]] << !x_y"""
_scalars = st.sampled_from([word.replace("_", " ") for word in _SCALARS.split()])
_lines = st.builds(
    lambda indent, key, value: f"{' ' * indent}{key}: {value}",
    st.sampled_from([0, 0, 2]),
    _scalars | st.sampled_from([*_NAMES, "<<", "? [a]"]),
    _scalars,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(_lines, max_size=4))
def test_any_yaml_text_is_taken_or_has_faults(lines: list[str]) -> None:
    assert is_taken_or_has_faults(HEAD + "\n".join(lines))


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_normalising_a_name_again_changes_nothing(name: str) -> None:
    once = normal_model_name(name)
    assert normal_model_name(once) == once


# --- the schema ---------------------------------------------------------------------------------------


def test_each_key_has_a_meaning_and_there_are_at_most_55() -> None:
    keys_of_lists = [path for path, *_ in rows() if "[]" in path or ".NAME." in path]
    assert [path for path, _, _, meaning in rows() if not meaning.strip()] == []
    assert len(list(rows())) - len(keys_of_lists) <= 55 + len(("apiVersion", "kind"))


def test_the_schema_refuses_every_key_that_it_does_not_have() -> None:
    structs = [SCHEMA, *SCHEMA["definitions"].values()]
    assert all(each["additionalProperties"] is False for each in structs)
