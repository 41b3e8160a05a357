"""The policy file: what it means, and that every fault is named by its path."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.admission.harness import MANIFESTS, shipped_policy
from webhook.cli import policy as command
from webhook.policy.document import PolicyError
from webhook.policy.file import parse_policy
from webhook.policy.reference import DEFAULT_EXCLUDED_NAMESPACES
from webhook.policy.store import PolicyStore
from webhook.policy.values import Policy, normal_model_name

HEAD = "apiVersion: topogate.io/v1alpha1\nkind: AdmissionPolicy\n"
TIERS = (
    "tiers: [{name: low, priorityClassName: l}, {name: mid, priorityClassName: m},"
    " {name: high, priorityClassName: h}]\n"
)
MODEL = "gpuModels: [{name: H100, labels: {a.io/b: c}}]\n"


def faults_of(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    return caught.value.faults


def test_the_shipped_policy_is_whole() -> None:
    policy = parse_policy(shipped_policy())
    assert [tier.name for tier in policy.tiers] == ["low", "medium", "high"]
    assert policy.gate == keys.GATE
    shipped = {
        item["metadata"]["name"]
        for item in yaml.safe_load_all((MANIFESTS / "priorityclasses.yaml").read_text())
    }
    assert {tier.priority_class_name for tier in policy.tiers} == shipped


def test_the_shortest_policy_gates_the_usual_gpus_and_does_nothing_else() -> None:
    policy = parse_policy(HEAD)
    assert policy == Policy()
    for resource in ("nvidia.com/gpu", "amd.com/gpu", keys.I915, keys.XE, "nvidia.com/mig-1g.10gb"):
        assert policy.is_gpu_resource(resource)
    assert not policy.is_gpu_resource("nvidia.com/gpu.shared.other")


WRONG: dict[str, tuple[str, str]] = {
    "empty file": ("", "document: is empty"),
    "an empty mapping": ("{}", "document: is empty; start with apiVersion"),
    "a list": ("- a", "document: must be a mapping, not a list"),
    "a text": ("x", "document: must be a mapping, not text"),
    "a list without a value": (
        HEAD + "topologyLevels:\n",
        "topologyLevels: must be a list, not nothing; leave the key out, or write []",
    ),
    "namespaces without a value": (HEAD + "namespaces:\n", "namespaces: must be a mapping, not nothing"),
    "a namespace without a value": (
        HEAD + "namespaces: {a: }\n",
        "namespaces.a: must be a mapping, not nothing",
    ),
    "a gate without a value": (HEAD + "gate:\n", "gate: must be text, not nothing"),
    "excluded namespaces without a value": (HEAD + "excludedNamespaces: ~\n", "must be a list, not nothing"),
    "no level": (HEAD + "topologyLevels: []\n", "topologyLevels: must name at least one level"),
    "a model without a name": (
        HEAD + 'gpuModels: [{name: "", labels: {a: b}}]\n',
        "gpuModels[0].name: is empty",
    ),
    "a model named by a blank": (HEAD + 'gpuModels: [{name: " ", labels: {a: b}}]\n', "[0].name: is empty"),
    "an empty alias": (
        HEAD + 'gpuModels: [{name: a, aliases: [""], labels: {a: b}}]\n',
        "gpuModels[0].aliases[0]: is empty",
    ),
    "an empty default tier": (
        HEAD + TIERS + 'namespaces: {a: {defaultTier: ""}}\n',
        "namespaces.a.defaultTier: is empty",
    ),
    "an empty default model": (
        HEAD + MODEL + 'namespaces: {a: {defaultGpuModel: ""}}\n',
        "namespaces.a.defaultGpuModel: is empty",
    ),
    "a model with an endless name": (
        HEAD + f"gpuModels: [{{name: {'a' * 101}, labels: {{a: b}}}}]\n",
        "has more than 100 characters",
    ),
    "a label whose prefix is too long": (
        HEAD + f"gpuModels: [{{name: a, labels: {{{'a' * 254}/b: c}}}}]\n",
        "is not a label key",
    ),
    "a namespace name that is too long": (
        HEAD + f"namespaces: {{{'a' * 64}: {{}}}}\n",
        "is not a namespace name",
    ),
    "no yaml": ("a: [", "line 1, column 5"),
    "a key written twice": (HEAD + "gate: a\ngate: b\n", "line 4, column 1: key 'gate' is written twice"),
    "merged maps of merged maps": (
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10)),
        "line 6, column 5: has more than 10,000 keys",
    ),
    "another version": (
        "apiVersion: v1\nkind: AdmissionPolicy\n",
        "apiVersion: must be topogate.io/v1alpha1, not 'v1'",
    ),
    "no kind": ("apiVersion: topogate.io/v1alpha1\n", "kind: must be AdmissionPolicy, not None"),
    "a misspelt key": (HEAD + "namespace: {}\n", "namespace: unknown key; did you mean namespaces?"),
    "a gate that nobody removes": (HEAD + "gate: mine.io/gate\n", "gate: 'mine.io/gate' must start with"),
    "a gate beside its prefix": (
        HEAD + "gatePrefix: mine.io/wait-\ngate: mine.io/gate\n",
        "gate: 'mine.io/gate' must start with mine.io/wait- (gatePrefix)",
    ),
    "a prefix that begins no name": (
        HEAD + "gatePrefix: mine.io/\n",
        "gatePrefix: 'mine.io/' is not a prefix of a gate's name",
    ),
    "a gate that is no name": (HEAD + "gate: 'a b'\n", "gate: 'a b' is not a qualified name"),
    "no gpu resource at all": (HEAD + "gpuResources: []\n", "gpuResources: must name at least one"),
    "a gpu resource without a domain": (
        HEAD + "gpuResources: [gpu]\n",
        "gpuResources[0]: 'gpu' is not a resource name",
    ),
    "a tier without a class": (HEAD + "tiers: [{name: a}]\n", "tiers[0].priorityClassName: is missing"),
    "two tiers of one name": (HEAD + TIERS.replace("mid", "low"), "tiers[1].name: tier 'low' occurs twice"),
    "two tiers of one class": (
        HEAD + TIERS.replace(": m}", ": l}"),
        "tiers[1].priorityClassName: 'l' is already the class of another tier",
    ),
    "a system class": (
        HEAD + "tiers: [{name: a, priorityClassName: system-node-critical}]\n",
        "tiers[0].priorityClassName: 'system-node-critical' is for the cluster's own pods",
    ),
    "a model without labels": (
        HEAD + "gpuModels: [{name: a}]\n",
        "gpuModels[0].labels: must name at least one",
    ),
    "a model of punctuation": (
        HEAD + "gpuModels: [{name: '--', labels: {a: b}}]\n",
        "neither letters nor digits",
    ),
    "two models that normalise to one": (
        HEAD
        + "gpuModels: [{name: RTX 4090, labels: {a: b}}, {name: x, aliases: [rtx4090], labels: {a: b}}]\n",
        "gpuModels[1].aliases: 'rtx4090' is the same name as 'RTX 4090'",
    ),
    "a number for a name": (
        HEAD + "gpuModels: [{name: 4090, labels: {a: b}}]\n",
        "gpuModels[0].name: must be text, not a number; quote it",
    ),
    "a number for a label": (
        HEAD + "gpuModels: [{name: a, labels: {a: 1}}]\n",
        "gpuModels[0].labels[a]: must be text",
    ),
    "a label key with a tilde": (
        HEAD + "gpuModels: [{name: a, labels: {a~b: c}}]\n",
        "'a~b' is not a label key",
    ),
    "a label value with a blank": (
        HEAD + "gpuModels: [{name: a, labels: {a: b c}}]\n",
        "'b c' is not a label value",
    ),
    "an unknown tier": (
        HEAD + TIERS + "namespaces: {a: {defaultTier: top}}\n",
        "namespaces.a.defaultTier: no tier 'top'; known are low, mid, high",
    ),
    "an unknown model": (
        HEAD + MODEL + "namespaces: {a: {defaultGpuModel: B200}}\n",
        "namespaces.a.defaultGpuModel: no GPU model 'B200'; known are H100",
    ),
    "a default above the maximum": (
        HEAD + TIERS + "namespaces: {a: {defaultTier: high, maximumTier: mid}}\n",
        "namespaces.a.defaultTier: 'high' is above maximumTier 'mid'",
    ),
    "a namespace that is no name": (
        HEAD + "namespaces: {A_b: {}}\n",
        "namespaces.A_b: 'A_b' is not a namespace name",
    ),
    "a bare number as namespace": (
        HEAD + "namespaces: {7: {}}\n",
        "namespaces: key 7 must be text; quote it",
    ),
    "a template that was not rendered": (
        HEAD + "gate: {{ .Values.gate }}\n",
        "line 3, column 8: a key must be text; is this a template",
    ),
    "a list for a key": (HEAD + "namespaces: {[a]: {}}\n", "line 3, column 14: a key must be text"),
    "a truth that is none": (
        HEAD + "gate: !!bool maybe\n",
        "line 3, column 7: 'maybe' cannot be read as a YAML bool",
    ),
    "a number that is none": (HEAD + "gate: !!int ''\n", "line 3, column 7: '' cannot be read as a YAML int"),
    "a time that is none": (
        HEAD + "gate: !!timestamp x\n",
        "line 3, column 7: 'x' cannot be read as a YAML timestamp",
    ),
    "a date that is none": (HEAD + "gate: 2024-13-45\n", "line 3, column 7: '2024-13-45' cannot be read"),
    "a number with too many digits": (HEAD + f"gate: {'9' * 5000}\n", "cannot be read as a YAML int"),
    "a number too long to print": (f"apiVersion: 0x{'9' * 9000}\n", "not a number"),
    "a long version": (f"apiVersion: {'v' * 5000}\n", f"not '{'v' * 80}...'"),
    "deep nesting": ("[" * 20_000, "document: is nested too deeply"),
    "a key that no terminal can print": ('"\\ud800\\n": 1\n', "\\ud800\\x0a: unknown key"),
    "a way with native gangs that there is not": (
        HEAD + "nativeGangs: ignore\n",
        "nativeGangs: no choice 'ignore'; known are adopt, leave",
    ),
    "a way of binding that there is not": (
        HEAD + "bind: together\n",
        "bind: no choice 'together'; known are pinned, podgroup, nominated",
    ),
    "a level twice": (HEAD + "topologyLevels: [a, a]\n", "topologyLevels[1]: 'a' occurs twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_fault_is_named_by_its_path(case: str) -> None:
    text, words = WRONG[case]
    assert words in "\n".join(faults_of(text))


def test_all_faults_are_named_at_once() -> None:
    found = faults_of(HEAD + "gate: x\ntiers: [{name: a}]\nnamespaces: {b: {maximumTier: c}}\nlevels: []\n")
    assert [fault.split(":")[0] for fault in found] == [
        "levels",
        "tiers[0].priorityClassName",
        "gate",
        "namespaces.b.maximumTier",
    ]


def test_each_nameless_tier_has_one_fault() -> None:
    found = faults_of(HEAD + "tiers: [{priorityClassName: l}, {priorityClassName: m}]\n")
    assert found == ["tiers[0].name: is missing", "tiers[1].name: is missing"]


def test_a_label_may_have_the_longest_prefix_that_there_is() -> None:
    key = "a" * 253 + "/b"
    policy = parse_policy(HEAD + f"gpuModels: [{{name: a, labels: {{{key}: ''}}}}]\n")
    assert policy.gpu_models[0].labels == {key: ""}


@pytest.mark.parametrize("namespaces", ["[]", "[foo]"])
def test_the_clusters_own_namespaces_are_excluded_whatever_a_file_adds(namespaces: str) -> None:
    policy = parse_policy(HEAD + f"excludedNamespaces: {namespaces}\n")
    assert policy.excluded_namespaces >= set(DEFAULT_EXCLUDED_NAMESPACES)
    assert ("foo" in policy.excluded_namespaces) == (namespaces == "[foo]")


def test_a_padded_model_is_not_taken_for_the_model_that_it_begins_with() -> None:
    policy = parse_policy(HEAD + "gpuModels: [{name: RTX 4090, labels: {a: b}}]\n")
    assert policy.gpu_model("RTX 4090" + " " * 92) is not None
    assert policy.gpu_model("RTX 4090" + " " * 95 + "SUPER") is None


def test_models_are_found_whatever_the_case_and_punctuation() -> None:
    policy = parse_policy(HEAD + "gpuModels: [{name: RTX 4090, aliases: [Ada-24G], labels: {a: b}}]\n")
    for name in ("RTX 4090", "rtx-4090", "rtx_4090", "RTX4090", "ada 24g"):
        found = policy.gpu_model(name)
        assert found is not None
        assert found.name == "RTX 4090"
    assert policy.gpu_model("RTX 4080") is None
    assert policy.nearest_model_names("RTX 4080") == ["RTX 4090"]


def test_a_namespace_without_an_entry_follows_the_star() -> None:
    policy = parse_policy(
        HEAD + TIERS + 'namespaces: {"*": {maximumTier: low}, a: {maximumTier: mid}, b: {}}\n'
    )
    assert policy.allowed_tiers("other") == ("low",)
    assert policy.allowed_tiers("a") == ("low", "mid")
    assert policy.allowed_tiers("b") == ("low", "mid", "high")


def test_a_namespaces_default_model_may_be_written_as_in_a_pods_annotation() -> None:
    policy = parse_policy(HEAD + MODEL + "namespaces: {a: {defaultGpuModel: h-100}}\n")
    assert policy.rules("a").default_gpu_model == "H100"


def is_policy_or_faults(text: str | bytes) -> bool:
    try:
        parse_policy(text)
    except PolicyError as error:
        return bool(error.faults) and all(fault.strip() for fault in error.faults)
    return True


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
_documents = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["apiVersion", "kind", "gate", "tiers", "name", "labels", "gpuModels", "namespaces", "*"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(_documents)
def test_any_document_is_a_policy_or_a_list_of_faults(document: Any) -> None:
    assert is_policy_or_faults(yaml.safe_dump(document))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_are_a_policy_or_a_list_of_faults(text: bytes | str) -> None:
    assert is_policy_or_faults(text)


_SCALARS = """a '' ~ 1 2024-13-45 {{.Values.x}} !!bool_maybe !!int_'' !!timestamp_x *a !!set_{a} !!binary_x
!!omap_[a] &a_[*a] &a_{b:_*a} "\\ud800" [[a]] << !x_y"""
_scalars = st.sampled_from([word.replace("_", " ") for word in _SCALARS.split()])
_lines = st.builds(
    lambda indent, key, value: f"{' ' * indent}{key}: {value}",
    st.sampled_from([0, 0, 2]),
    _scalars | st.sampled_from(["gate", "tiers", "gpuModels", "namespaces", "gpuResources", "<<", "? [a]"]),
    _scalars,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(_lines, max_size=4))
def test_any_yaml_text_is_a_policy_or_a_list_of_faults(lines: list[str]) -> None:
    assert is_policy_or_faults(HEAD + "\n".join(lines))


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_normalising_a_name_again_changes_nothing(name: str) -> None:
    once = normal_model_name(name)
    assert normal_model_name(once) == once


# --- the store and the command ----------------------------------------------------------------------


def test_a_store_keeps_the_old_policy_while_the_file_is_broken_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(HEAD + TIERS)
    store = PolicyStore(path)
    for content in ("gate: x", None):
        path.unlink() if content is None else path.write_text(content)
        store.refresh()
        assert store.faults
        assert (store.generation, len(store.policy.tiers)) == (1, 3)
    path.write_text(HEAD)
    store.refresh()
    assert (store.faults, store.generation, store.policy) == ([], 2, Policy())


def test_a_file_that_comes_back_unchanged_clears_the_fault(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(HEAD)
    store = PolicyStore(path)
    path.unlink()
    store.refresh()
    assert store.faults
    path.write_text(HEAD)
    store.refresh()
    assert store.faults == []


def test_a_file_that_is_set_back_to_the_version_in_force_clears_the_fault(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(HEAD)
    store = PolicyStore(path)
    for content in ("broken: [", HEAD):
        path.write_text(content)
        store.refresh()
    assert store.faults == []


def test_a_defect_in_the_reader_is_a_fault_that_stays_until_a_good_version_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(HEAD + TIERS)
    store = PolicyStore(path)
    path.write_text(HEAD)

    def fail(*_: object) -> Policy:
        raise TypeError("unforeseen")

    with monkeypatch.context() as patched:
        patched.setattr("webhook.policy.store.parse_policy", fail)
        for _ in range(2):
            store.refresh()
            assert store.faults == ["cannot be read: TypeError; see the log"]
    assert (store.generation, len(store.policy.tiers)) == (1, 3)


def check(*files: Path) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command.run(parser.parse_args(["policy", "check", *map(str, files)]))


def test_policy_check_accepts_the_shipped_configmap(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MANIFESTS / "policy.yaml") == 0
    assert "ok: 3 tiers, 5 GPU models, 6 GPU resources" in capsys.readouterr().out


def test_policy_check_names_every_fault_of_every_file_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text(HEAD + "gate: x\nlevels: []\n")
    good.write_text(HEAD)
    assert check(bad, good, tmp_path / "none.yaml") == 1
    output = capsys.readouterr()
    assert f"{bad}: levels: unknown key" in output.err
    assert f"{bad}: gate: 'x' must start with" in output.err
    assert f"{tmp_path / 'none.yaml'}: cannot be read: No such file" in output.err
    assert f"{good}: ok" in output.out


@pytest.mark.parametrize("data", ["{other: x}", "[1]", "7", "", "{policy.yaml: {}}"])
def test_policy_check_reports_a_configmap_without_a_policy(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"kind: ConfigMap\ndata: {data}\n")
    assert check(path) == 1
    assert "the ConfigMap has no policy.yaml" in capsys.readouterr().err
