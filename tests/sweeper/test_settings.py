"""The sweeper's configuration file: what it may say, and that a mistake is told with its place."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

from webhook.fairness.turns import AHEAD
from webhook.kube.planned import PLAIN_PODS
from webhook.placement import Mode, Options
from webhook.sweeper import use_store
from webhook.sweeper.decide import ledger
from webhook.sweeper.decide.avoided import AVOID_SECONDS
from webhook.sweeper.main import _parser, _settings
from webhook.sweeper.node_rules import Avoid, BadNodes, SpareNodes
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.repair.repair import STAYS_SECONDS
from webhook.sweeper.settings import Settings, SettingsError, load
from webhook.workloads.shape import MOST_PODS


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "sweeper.yaml"
    file.write_text(text)
    return Settings(**load(file))


def test_an_empty_file_leaves_every_default(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing yet\n") == Settings()


DEFAULTS = {
    "mode": ("options.mode", Mode.BEST_FIT),
    "two minutes to be bound": ("bind_seconds", 120),
    "an hour until nobody's pod is given up": ("abandon_seconds", 3600),
    "five minutes until nodes are held": ("reserve_seconds", 300),
    "held for half an hour": ("reserve_hold_seconds", 1800),
    "half of the nodes": ("reserve_share", 0.5),
    "half a minute until what is left of a gang goes": ("broken_seconds", 30),
    "broken gangs are evicted": ("evict_broken", True),
    "gangs preempt": ("preempt", True),
    "pods are repaired": ("repair", True),
    "fewer pods wait": ("go_on_with_fewer", False),
    "managed fields are emptied": ("keep_managed_fields", False),
    "one scheduler": ("schedulers", {"default-scheduler"}),
    "GPU classes": ("gpu_device_classes", {"*gpu*"}),
    "bad nodes": ("bad_nodes", BadNodes(Avoid.SOFT, 3, 600, 10, 3600, 86400, 0.1)),
    "spare nodes": ("spare_nodes.per_block", 0),
    "nobody is asked for nodes": ("scale_up.provisioning_class", ""),
    "requests of a namespace": ("scale_up.requests", 10),
    "pods of these": ("scale_up.pods", 1000),
    "asked for after": ("scale_up.after_seconds", 5),
    "asked for again after": ("scale_up.retry_seconds", 60),
    "labels are waited for": ("scale_up.label_seconds", 120),
}


@pytest.mark.parametrize("what", DEFAULTS)
def test_a_default_is_as_the_docs_say(what: str) -> None:
    path, expected = DEFAULTS[what]
    assert attrgetter(path)(Settings()) == expected


def test_a_number_that_is_no_setting_is_as_the_docs_say() -> None:
    assert AVOID_SECONDS == 600, "a pod of the same controller was refused within ten minutes"
    assert ENDING_SECONDS == 600, "victims have taken ten minutes to end"
    assert STAYS_SECONDS == 30, "what cannot be deleted keeps cards from nobody after half a minute"
    assert MOST_PODS == 5000, "larger gangs are planned by the pods that are there"
    assert use_store.SECONDS == 60, "use is written once a minute"
    assert AHEAD == 1 / 8, "what an account has counts for an eighth of the half-life"
    assert ledger.MOST == 1000, "failures that are kept"
    assert PLAIN_PODS == 2000, "larger plans are packed"


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sweeper.yaml"
    file.write_text("settle_seconds: 2\npatience_seconds: 3\nmode: headroom\nscale_up: {requests: 4}\n")
    options = _parser().parse_args(
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
        "gang_labels: [app.kubernetes.io/instance, name, name]\n"
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


@pytest.mark.parametrize(("name", "instead"), [("least-free", Mode.KEEP_WHOLE), ("balanced", Mode.BEST_FIT)])
def test_a_removed_mode_is_taken_with_a_warning_of_what_is_used_instead(
    name: str, instead: Mode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read(tmp_path, f"mode: {name}").options.mode is instead
    (warning,) = caplog.messages
    assert str(tmp_path) in warning
    assert f"mode '{name}' was removed, and {instead} is used; the next release refuses it" in warning


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("setle_seconds: 2", "setle_seconds is no setting; there are"),
        ("settle_seconds: soon", "settle_seconds: 'soon' is not a number of seconds"),
        ("settle_seconds: -1", "settle_seconds: -1 is not a number of seconds"),
        ("reserve_hold_seconds: .inf", "reserve_hold_seconds: inf is not a number of seconds up to 1e+09"),
        ("reserve_hold_seconds: 1.0e+12", "is not a number of seconds up to 1e+09"),
        ("settle_seconds: true", "settle_seconds: True is not a number of seconds"),
        ("repair: 'no'", "repair: 'no' is not true or false"),
        ("ignored_namespaces: a", "ignored_namespaces: 'a' is not a list of names"),
        ("mode: widest", "mode: 'widest' is none of best-fit, headroom, keep-whole"),
        ("weights: {cpu: 0.5}", "weights: must map resource names to whole numbers"),
        ("weights: {cpu: -1}", "weights: must map resource names to whole numbers"),
        ("weights: cpu", "weights: must map resource names to whole numbers"),
        ("bound: fast", "bound: 'fast' is not a whole number of steps"),
        ("bound: 10", "bound: 10 is not a whole number of steps"),
        ("most_allocated: fully", "most_allocated: 'fully' is not true or false"),
        ("levels: {a: [x, y], b: [z]}", "levels: each level needs one label key for each family"),
        ("gang_labels: name", "gang_labels: 'name' is not a list of label keys"),
        ("gang_labels: [a b]", "gang_labels: 'a b' is no key of a label"),
        ("gang_labels: [A.io/b]", "gang_labels: 'A.io/b' is no key of a label"),
        ("gang_labels: [job-name]", "gang_labels: job-name is read already"),
        ("gang_labels: [topogate.io/gang]", "gang_labels: topogate.io/gang is read already"),
        ("gang_owners: Flow.example.com", "gang_owners: 'Flow.example.com' is not a list of names"),
        ("gang_owners: [flows.example.com]", "gang_owners: 'flows.example.com' is no kind; write Kind.group"),
        ("loose_owners: [Flow.example.com/v1]", "loose_owners: 'Flow.example.com/v1' is no kind"),
        (
            "{loose_owners: [Flow.example.com], gang_owners: [Flow.example.com]}",
            "loose_owners: Flow.example.com is in gang_owners too",
        ),
        ("- a", "must be a mapping of settings"),
        ("a: [", "cannot be read"),
    ],
    ids=lambda value: value,
)
def test_a_mistake_is_told_with_file_and_field(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert complaint in str(caught.value)
    assert "sweeper.yaml" in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_rules_of_nodes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "bad_nodes: {avoid: hard, failures: 2, share: 0.25}\n"
        "spare_nodes: {per_block: 2, if_nothing_else_fits: true}\n"
    )
    settings = Settings(**load(path))
    assert settings.bad_nodes == BadNodes(avoid=Avoid.HARD, failures=2, share=0.25)
    assert settings.spare_nodes == SpareNodes(2, if_nothing_else_fits=True)


def test_off_needs_no_quotes(tmp_path: Path) -> None:
    """YAML reads it as false."""
    path = tmp_path / "s.yaml"
    path.write_text("bad_nodes: {avoid: off}\n")
    assert load(path)["bad_nodes"].avoid is Avoid.OFF


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bad_nodes: soft", "bad_nodes: 'soft' is not a mapping of avoid, failures"),
        ("bad_nodes: {avoid: gently}", "avoid: 'gently' is none of off, soft, hard"),
        ("bad_nodes: {failure: 3}", "'failure' is no setting; there are avoid, failures"),
        ("bad_nodes: {failures: 1}", "failures: 1 is not a whole number from 2 to 100"),
        ("bad_nodes: {failures: 2.5}", "failures: 2.5 is not a whole number from 2 to 100"),
        ("bad_nodes: {share: 2}", "share: 2 is not a number from 0 to 1"),
        ("bad_nodes: {avoid_seconds: true}", "avoid_seconds: True is not a number"),
        ("spare_nodes: {per_block: -1}", "spare_nodes: per_block: -1 is not a whole number from 0 to 1000"),
        ("scale_up: on", "scale_up: True is not a mapping of provisioning_class, parameters"),
        ("scale_up: {class: a}", "'class' is no setting; there are provisioning_class"),
        ("scale_up: {provisioning_class: A_}", "provisioning_class: 'A_' is no class of provisioning"),
        ("scale_up: {provisioning_class: 7}", "provisioning_class: 7 is no class of provisioning"),
        ("scale_up: {requests: 0}", "scale_up: requests: 0 is not a whole number from 1 on"),
        ("scale_up: {pods: 1.5}", "pods: 1.5 is not a whole number from 1 on"),
        ("scale_up: {retry_seconds: .inf}", "retry_seconds: inf is not a number from 0 on"),
        (
            "scale_up: {label_seconds: 1.0e+12}",
            "label_seconds: 1000000000000.0 is not a number from 0 to 1e+09",
        ),
        ("scale_up: {after_seconds: .nan}", "after_seconds: nan is not a number from 0 on"),
        ("scale_up: {parameters: {a: 1}}", "parameters: {'a': 1} is not a mapping of names to texts"),
        ("spare_nodes: {if_nothing_else_fits: 1}", "if_nothing_else_fits: 1 is not true or false"),
    ],
)
def test_what_is_wrong_with_rules_of_nodes_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        load(path)
