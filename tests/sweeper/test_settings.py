"""The sweeper's configuration file: what it may say, and that a mistake is reported with its place."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

from webhook.extensions.fair_order.scores import PROJECTED
from webhook.extensions.node_health import failing_nodes
from webhook.kube.planned import PLAIN_PODS
from webhook.placement import Mode, Options
from webhook.sweeper.decide.backoff import AVOID_SECONDS
from webhook.sweeper.extension import RecordSpec
from webhook.sweeper.extension_settings import Avoid, BadNodes, SpareNodes
from webhook.sweeper.main import _settings, parser
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.repair.repair import STAYS_SECONDS
from webhook.sweeper.settings import Settings, SettingsError, load
from webhook.workloads.shape import MOST_PODS


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "sweeper.yaml"
    file.write_text(text)
    return load(file)


def test_an_empty_file_leaves_every_default(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing yet\n") == Settings()


DEFAULTS = {
    "options.mode": Mode.BEST_FIT,
    "bind_seconds": 120,
    "abandon_seconds": 3600,
    "reserve_seconds": 300,
    "reserve_hold_seconds": 1800,
    "reserve_share": 0.5,
    "broken_seconds": 30,
    "evict_broken": True,
    "preempt": True,
    "repair": True,
    "go_on_with_fewer": False,
    "keep_managed_fields": False,
    "schedulers": {"default-scheduler"},
    "gpu_device_classes": {"*gpu*"},
    "bad_nodes": BadNodes(Avoid.SOFT, 3, 600, 10, 3600, 86400, 0.1),
    "spare_nodes.per_block": 0,
    "scale_up.provisioning_class": "",
    "scale_up.requests": 10,
    "scale_up.pods": 1000,
    "scale_up.after_seconds": 5,
    "scale_up.retry_seconds": 60,
    "scale_up.label_seconds": 120,
}


def test_a_default_is_that_of_the_docs() -> None:
    assert {path: attrgetter(path)(Settings()) for path in DEFAULTS} == DEFAULTS


def test_a_number_that_is_no_setting_is_that_of_the_docs() -> None:
    assert AVOID_SECONDS == 600, "a pod of the same controller was refused within ten minutes"
    assert ENDING_SECONDS == 600, "victims have taken ten minutes to end"
    assert STAYS_SECONDS == 30, "what cannot be deleted keeps cards from nobody after half a minute"
    assert MOST_PODS == 5000, "larger gangs are planned by the pods that are there"
    assert RecordSpec("any").seconds == 60, "use is written once a minute"
    assert PROJECTED == 1 / 8, "what an account has counts for an eighth of the half-life"
    assert failing_nodes.MOST == 1000, "failures that are kept"
    assert PLAIN_PODS == 2000, "larger plans are packed"


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sweeper.yaml"
    file.write_text("settle_seconds: 2\npatience_seconds: 3\nmode: headroom\nscale_up: {requests: 4}\n")
    options = parser().parse_args(
        [f"--config={file}", "--settle=7", "--mode=keep-whole", "--scale-up-requests=8"]
    )
    found = _settings(options)
    assert (found.settle_seconds, found.patience_seconds) == (7, 3)
    assert (found.options.mode, found.scale_up.requests) == (Mode.KEEP_WHOLE, 8)


def test_each_kind_of_setting_is_taken(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "settle_seconds: 2\nrepair: false\nignored_namespaces: [a, b]\nmode: keep-whole\n"
        "gate_prefix: example.com/wait-\nweights: {cpu: 0, nvidia.com/gpu: 5}\nmost_allocated: true\n"
        "levels: {pod: [example.com/pod], rack: [example.com/rack]}\n"
        "gang_labels: [app.kubernetes.io/instance, name]\n"
        "gang_owners: [Workflow.argoproj.io]\nloose_owners: [Flow.example.com, Thing]\n",
    )
    assert found.owner_rules.gang_owners == {"Workflow.argoproj.io"}
    assert found.owner_rules.loose_owners == {"Flow.example.com", "Thing"}
    assert found.gang_labels == ("app.kubernetes.io/instance", "name")
    assert (found.settle_seconds, found.repair, found.ignored_namespaces) == (2.0, False, frozenset("ab"))
    assert found.options == Options(
        mode=Mode.KEEP_WHOLE, weights={"cpu": 0, "nvidia.com/gpu": 5}, most_allocated=True
    )
    assert found.gate_prefix == "example.com/wait-"
    assert found.topology.level_names == ("pod", "rack")
    assert found.topology.families == (("example.com/pod", "example.com/rack"),)


MISTAKES = [
    ("setle_seconds: 2", "setle_seconds: unknown key; did you mean settle_seconds?"),
    (
        "settle_seconds: soon",
        "settle_seconds: must be a number of seconds from 0 to 1000000000, not 'soon'",
    ),
    ("settle_seconds: -1", "settle_seconds: must be a number of seconds from 0 to 1000000000, not -1"),
    (
        "reserve_hold_seconds: .inf",
        "reserve_hold_seconds: must be a number of seconds from 0 to 1000000000, not inf",
    ),
    (
        "reserve_hold_seconds: 1.0e+12",
        "must be a number of seconds from 0 to 1000000000, not 1000000000000.0",
    ),
    (
        "settle_seconds: true",
        "settle_seconds: must be a number of seconds from 0 to 1000000000, not True",
    ),
    ("repair: 'no'", "repair: must be true or false, not 'no'"),
    ("ignored_namespaces: a", "ignored_namespaces: must be a list, not text"),
    ("mode: widest", "mode: must be one of best-fit, headroom, keep-whole, not 'widest'"),
    ("mode: least-free", "mode: must be one of best-fit, headroom, keep-whole, not 'least-free'"),
    ("mode: balanced", "mode: must be one of best-fit, headroom, keep-whole, not 'balanced'"),
    ("weights: {cpu: 0.5}", "weights.cpu: must be a whole number from 0 to 1000, not 0.5"),
    ("weights: {cpu: -1}", "weights.cpu: must be a whole number from 0 to 1000, not -1"),
    ("weights: cpu", "weights: must be a mapping, not text"),
    ("bound: fast", "bound: must be a whole number of steps from 10000 to 60000000, not 'fast'"),
    ("bound: 10", "bound: must be a whole number of steps from 10000 to 60000000, not 10"),
    ("most_allocated: fully", "most_allocated: must be true or false, not 'fully'"),
    ("reserve_share: 2", "reserve_share: must be a number from 0 to 1, not 2"),
    ("reserve_share: 0.1\nreserve_share: 0.9", "line 2, column 1: key 'reserve_share' is written twice"),
    ("settle_seconds:", "settle_seconds: must be a number of seconds from 0 to 1000000000, not None"),
    ("schedulers: []", "schedulers: must name at least one scheduler's name"),
    ("gang_labels: [name, name]", "gang_labels[1]: 'name' occurs twice"),
    ("levels: {a: [x, y], b: [z]}", "levels: each level needs one label key for each family"),
    ("gang_labels: name", "gang_labels: must be a list, not text"),
    ("gang_labels: [a b]", "gang_labels[0]: 'a b' is not a label key"),
    ("gang_labels: [A.io/b]", "gang_labels[0]: 'A.io/b' is not a label key"),
    ("gang_labels: [job-name]", "gang_labels: job-name is already read"),
    ("gang_labels: [topogate.io/gang]", "gang_labels: topogate.io/gang is already read"),
    ("gang_owners: Flow.example.com", "gang_owners: must be a list, not text"),
    (
        "gang_owners: [flows.example.com]",
        "gang_owners[0]: 'flows.example.com' is not a kind of owner, Kind.group",
    ),
    (
        "loose_owners: [Flow.example.com/v1]",
        "loose_owners[0]: 'Flow.example.com/v1' is not a kind of owner",
    ),
    (
        "{loose_owners: [Flow.example.com], gang_owners: [Flow.example.com]}",
        "loose_owners: Flow.example.com is in gang_owners too",
    ),
    ("- a", "document: must be a mapping, not a list"),
    ("a: [", "line 1, column 5: expected the node content"),
    ("bad_nodes: soft", "bad_nodes: must be a mapping, not text"),
    ("bad_nodes: {avoid: gently}", "bad_nodes.avoid: must be one of off, soft, hard, not 'gently'"),
    ("bad_nodes: {failure: 3}", "bad_nodes.failure: unknown key; did you mean failures?"),
    ("bad_nodes: {failures: 1}", "failures: must be a whole number from 2 to 100, not 1"),
    ("bad_nodes: {failures: 2.5}", "failures: must be a whole number from 2 to 100, not 2.5"),
    ("bad_nodes: {share: 2}", "bad_nodes.share: must be a number from 0 to 1, not 2"),
    (
        "bad_nodes: {avoid_seconds: true}",
        "bad_nodes.avoid_seconds: must be a number of seconds from 1 to 604800, not True",
    ),
    (
        "spare_nodes: {per_block: -1}",
        "spare_nodes.per_block: must be a whole number from 0 to 1000, not -1",
    ),
    ("scale_up: on", "scale_up: must be a mapping, not true or false"),
    ("scale_up: {class: a}", "scale_up.class: unknown key; known are provisioning_class, parameters"),
    (
        "scale_up: {provisioning_class: A_}",
        "scale_up.provisioning_class: must be a ProvisioningRequest class such as",
    ),
    (
        "scale_up: {provisioning_class: 7}",
        "scale_up.provisioning_class: must be a ProvisioningRequest class such as",
    ),
    ("scale_up: {requests: 0}", "scale_up.requests: must be a whole number from 1 to 1000000000, not 0"),
    ("scale_up: {pods: 1.5}", "scale_up.pods: must be a whole number from 1 to 1000000000, not 1.5"),
    (
        "scale_up: {retry_seconds: .inf}",
        "scale_up.retry_seconds: must be a number of seconds from 0 to 1000000000, not inf",
    ),
    (
        "scale_up: {label_seconds: 1.0e+12}",
        "scale_up.label_seconds: must be a number of seconds from 0 to 1000000000, not 1000000000000.0",
    ),
    (
        "scale_up: {after_seconds: .nan}",
        "scale_up.after_seconds: must be a number of seconds from 0 to 1000000000, not nan",
    ),
    (
        "scale_up: {parameters: {a: 1}}",
        "scale_up.parameters.a: must be a text of at most 255 characters, not 1",
    ),
    (
        "spare_nodes: {if_nothing_else_fits: 1}",
        "spare_nodes.if_nothing_else_fits: must be true or false, not 1",
    ),
]


def complaint_about(tmp_path: Path, text: str) -> str:
    """The complaint about a file, "" if it is taken."""
    try:
        read(tmp_path, text)
    except SettingsError as error:
        return str(error)
    return ""


def test_a_mistake_is_reported_with_file_and_field(tmp_path: Path) -> None:
    found = [(complaint_about(tmp_path, text), complaint) for text, complaint in MISTAKES]
    assert [each for each in found if each[1] not in each[0] or "sweeper.yaml" not in each[0]] == []


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, "setle_seconds: 2\nrepair: 1\nscale_up: {requests: 0, class: a}\n")
    source = tmp_path / "sweeper.yaml"
    assert str(caught.value).splitlines() == [
        f"{source}: setle_seconds: unknown key; did you mean settle_seconds?",
        f"{source}: repair: must be true or false, not 1",
        f"{source}: scale_up.class: unknown key; known are provisioning_class, parameters, requests, pods, "
        "after_seconds, retry_seconds, label_seconds",
        f"{source}: scale_up.requests: must be a whole number from 1 to 1000000000, not 0",
    ]


FLAGS = [
    ("--settle=-1", "--settle: must be a number of seconds from 0 to 1000000000, not -1.0"),
    ("--interval=nan", "--interval: must be a number of seconds from 0 to 1000000000, not nan"),
    ("--gate=Bad Gate", "--gate: 'Bad Gate' is not a prefix of a gate's name"),
    ("--ignored-namespace=A", "--ignored-namespace[0]: 'A' is not a namespace name"),
    ("--scale-up=A_", "--scale-up: must be a ProvisioningRequest class such as"),
    ("--scale-up-pods=0", "--scale-up-pods: must be a whole number from 1 to 1000000000, not 0"),
]


def test_a_flag_follows_the_rules_of_its_setting() -> None:
    for flag, fault in FLAGS:
        with pytest.raises(SettingsError, match=re.escape(fault)):
            _settings(parser().parse_args([flag]))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_rules_of_nodes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "bad_nodes: {avoid: hard, failures: 2, share: 0.25}\n"
        "spare_nodes: {per_block: 2, if_nothing_else_fits: true}\n"
    )
    settings = load(path)
    assert settings.bad_nodes == BadNodes(avoid=Avoid.HARD, failures=2, share=0.25)
    assert settings.spare_nodes == SpareNodes(2, if_nothing_else_fits=True)


def test_off_needs_no_quotes(tmp_path: Path) -> None:
    """YAML reads it as false."""
    path = tmp_path / "s.yaml"
    path.write_text("bad_nodes: {avoid: off}\n")
    assert load(path).bad_nodes.avoid is Avoid.OFF
