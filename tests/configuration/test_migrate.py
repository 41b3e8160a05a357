"""The two files of version 0.1 as one configuration, and a process that still has them."""

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.configuration.cluster import read_configuration
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import from_document, parse
from webhook.configuration.migrate import load_files, migrate, parse_files
from webhook.kube.client import ApiError
from webhook.placement import Options

OLD_HEAD = "apiVersion: topogate.io/v1alpha1\nkind: AdmissionPolicy\n"
POLICY = (
    OLD_HEAD
    + """
gatePrefix: example.com/wait-
gate: example.com/wait-here
gpuResources: [nvidia.com/gpu]
tiers: [{name: low, priorityClassName: l}]
gpuModels: [{name: H100, labels: {a.io/b: c}}]
namespaces: {"*": {defaultGpuModel: H100}}
excludedNamespaces: [ours]
topologyLevels: [rack, host]
schedulerNames: [default-scheduler]
resourceClaims: true
keepManagedFields: true
nativeGangs: leave
bind: podgroup
fairOrder: {halfLife: 2d, weights: {a: 3}}
"""
)
SETTINGS = """
gate_prefix: example.com/wait-
settle_seconds: 2.5
patience_seconds: 3
bind_seconds: 90
abandon_seconds: 7200
reserve_seconds: 60
reserve_hold_seconds: 600
reserve_share: 0.25
go_on_with_fewer: true
repair: false
repair_owners: [Job.batch]
schedulers: [default-scheduler]
preempt: false
keep_managed_fields: true
ignored_namespaces: [ours]
gpu_resources: [nvidia.com/gpu]
gpu_device_classes: ["*"]
model_label: a.io/model
gang_labels: [name]
gang_owners: [A.x.io]
loose_owners: [B.x.io]
bad_nodes: {avoid: hard, failures: 4, avoid_seconds: 60, share: 0.2}
spare_nodes: {per_block: 1, if_nothing_else_fits: true}
scale_up: {provisioning_class: c.x.io, parameters: {a: b}, requests: 3, pods: 4}
levels: {rack: x.io/rack, host: x.io/host}
mode: headroom
weights: {cpu: 2}
most_allocated: true
"""
NEW = """
apiVersion: topogate.io/v1beta1
kind: Configuration
gatePrefix: example.com/wait-
schedulerNames: [default-scheduler]
gpus: {resources: [nvidia.com/gpu], deviceClasses: ["*"], modelLabel: a.io/model}
tiers: [{name: low, priorityClassName: l}]
models: [{name: H100, labels: {a.io/b: c}}]
namespaces: {excluded: [ours], rules: {"*": {defaultModel: H100}}}
topology: {levels: {rack: x.io/rack, host: x.io/host}}
gangs: {labels: [name], owners: [A.x.io], looseOwners: [B.x.io], native: leave, settle: 2500ms, patience: 3s,
  startWithFewer: true}
placement: {mode: headroom, weights: {cpu: 2}}
binding: {mode: podgroup, timeout: 90s}
preemption: {enabled: false}
reservations: {after: 1m, duration: 10m, share: 0.25}
repair: {enabled: false, owners: [Job.batch], abandonAfter: 2h}
nodeHealth: {avoid: hard, failures: 4, avoidFor: 1m, share: 0.2}
spareNodes: {perBlock: 1, lastResort: true}
scaleUp: {provisioningClass: c.x.io, parameters: {a: b}, requests: 3, pods: 4}
fairOrder: {halfLife: 48h, weights: {a: 3}}
admission: {keepManagedFields: true}
"""


@pytest.mark.promise("O401")
def test_the_two_files_become_one_configuration_with_the_same_meaning() -> None:
    document, notes = migrate([("settings", SETTINGS), ("policy", POLICY)])
    assert from_document(document, "new") == parse(NEW)
    assert notes == [
        "policy: gate is dropped: pods get the gate that is gatePrefix with topogate after it",
        "policy: topologyLevels is dropped: topology.levels names the levels",
        "settings: most_allocated is dropped: of equal nodes, the one that loses the fewest GPUs is taken",
    ]


@pytest.mark.promise("O401")
@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ("interval_seconds: 5", "interval_seconds is dropped: a pass happens at least every 30 seconds"),
        (
            "bad_nodes: {keep_seconds: 5}",
            "bad_nodes.keep_seconds is dropped: a failure is forgotten after a day",
        ),
        (
            "gate_prefix: other.io/x",
            "gate_prefix is dropped: the policy sets gatePrefix to example.com/wait-",
        ),
        ("schedulers: [b]", "schedulers is dropped: the policy sets schedulerNames to default-scheduler"),
    ],
)
def test_what_is_dropped_is_named_with_what_holds_now(settings: str, note: str) -> None:
    _, notes = migrate([("policy", POLICY), ("settings", settings)])
    assert f"settings: {note}" in notes


@pytest.mark.parametrize(
    ("old", "fault"),
    [
        ("settle_seconds: soon", "gangs.settle: must be a duration"),
        ("settle_seconds: .inf", "gangs.settle: must be a duration, as 30s, 5m or 1h30m, not inf"),
        ("settle_seconds: .nan", "gangs.settle: must be a duration"),
        ("settle_seconds: -1", "gangs.settle: must be a duration, as 30s, 5m or 1h30m, not -1"),
        ("kind: AdmissionPolicy\nfairOrder: {halfLife: 1.2.3d}", "fairOrder.halfLife: must be a duration"),
        ("kind: AdmissionPolicy\nfairOrder: {halfLife: %sd}" % ("9" * 400), "fairOrder.halfLife: must be"),
        ("on: 2\nsettle_seconds: 2", "True: unknown key"),
        ("gangs: true\nsettle_seconds: 2", "gangs: must be a mapping, not true or false"),
        ("setle_seconds: 2", "setle_seconds: unknown key"),
        ("bad_nodes: soft", "bad_nodes: unknown key"),
        ("kind: AdmissionPolicy\ntiers: [{name: a}]", "tiers[0].priorityClassName: is missing"),
        ("namespaces: {excluded: [a]}", "apiVersion: is missing; write topogate.io/v1beta1"),
        ("repair: {enabled: false}", "apiVersion: is missing; write topogate.io/v1beta1"),
    ],
)
def test_a_fault_of_an_old_file_is_one_of_the_new(old: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(old)
    with pytest.raises(ConfigurationError) as caught:
        load_files([file])
    assert fault in str(caught.value)


@pytest.mark.promise("O401")
def test_a_program_takes_the_old_files_and_names_the_command_that_replaces_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [tmp_path / "policy.yaml", tmp_path / "sweeper.yaml"]
    for file, text in zip(files, (POLICY, SETTINGS), strict=True):
        file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert load_files(files) == parse(NEW)
    assert f"topogate config migrate {files[0]} {files[1]}" in caplog.text


def test_a_second_configuration_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text(NEW)
    with pytest.raises(ConfigurationError, match="there is one for the whole cluster"):
        load_files(files)


class OldCluster:
    """The boundary to an API server of version 0.1."""

    def json(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if not path.endswith("/topogate-policy"):
            raise ApiError(404, "NotFound", "not there")
        return {"metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": POLICY}}


def test_a_new_command_reads_the_policy_of_an_old_cluster() -> None:
    cluster: Any = OldCluster()
    assert [tier.name for tier in read_configuration(cluster).policy.tiers] == ["low"]


def test_every_old_name_is_translated_or_dropped() -> None:
    document, notes = migrate([("policy", POLICY), ("settings", SETTINGS)])
    assert not {*yaml.safe_load(SETTINGS), "gpuModels", "gpuResources"} & (document.keys() - {"repair"})
    assert notes


def test_an_old_file_that_keeps_nodes_whole_packs_by_best_fit_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse_files([("file", "{mode: keep-whole, most_allocated: true}")]).settings.options == Options()
    assert "mode is dropped: gangs are placed as with best-fit" in caplog.text
    assert "most_allocated is dropped: of equal nodes" in caplog.text


def test_an_old_file_that_nominates_gangs_binds_them_as_one_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse_files([("file", f"{OLD_HEAD}bind: nominated")]).policy.binds_by_pod_group
    assert "bind is dropped: gangs are no longer nominated, but bound as with podgroup" in caplog.text
