"""topogate simulate on files, as a person calls it."""

import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from labeler.contract import keys
from tests.cli.simulations import (
    WORKER,
    away_from,
    cluster,
    group,
    job,
    node,
    owner,
    replicated,
    simulated,
    template,
    with_spec,
)
from webhook.configuration.cluster import KEY, NAME
from webhook.placement.names import natural
from webhook.workloads import marks


def test_a_job_is_as_many_pods_as_run_at_once_and_limits_stand_in_for_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = cluster(node("a", "b0", 4), node("b", "b1", 8), node("c", "b1", 8))
    assert simulated(tmp_path, nodes, job(3)) == 0
    assert capsys.readouterr().out == (
        "Gang train: 3 pods on 1 block, 1 subblock, 2 hosts, 2 nodes\n"
        "  train-0  b\n"
        "  train-1  b\n"
        "  train-2  c\n"
    )


@pytest.mark.promise("R238")
def test_a_gang_of_two_jobs_is_noted_to_lack_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = {keys.GANG_ANNOTATION: "ring", keys.GANG_SIZE_ANNOTATION: "5"}
    first, second = job(2, **both), job(2, **both)
    second["metadata"]["name"] = "eval"
    nodes = cluster(node("a", "b0", 8), node("b", "b0", 8))
    assert simulated(tmp_path, nodes, {"kind": "List", "apiVersion": "v1", "items": [first, second]}) == 0
    printed = capsys.readouterr()
    assert "Gang ring: 4 pods on 1 block" in printed.out
    assert "note: gang ring: the manifest has 4 of its 5 pods; the others are not placed" in printed.err


def test_jobs_that_wait_until_others_have_completed_are_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[dict[str, Any]] = [
        {"name": name, "template": {"spec": job(1)["spec"]}} for name in ("train", "eval")
    ]
    jobs[1]["dependsOn"] = [{"name": "train", "status": "Complete"}]
    both = {"kind": "JobSet", "metadata": {"name": "x"}, "spec": {"replicatedJobs": jobs}}
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), both) == 0
    printed = capsys.readouterr()
    assert "  x-train-0-0  a\n" in printed.out
    assert "note: pods x-eval are created once others have completed: they are not placed here" in printed.err


@pytest.mark.promise("O52")
@pytest.mark.parametrize("mode", ["least-free", "balanced"])
def test_a_removed_mode_is_refused_with_those_that_there_are(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        simulated(tmp_path, cluster(node("a", "b0", 8)), job(1), "--mode", mode)
    assert f"invalid choice: '{mode}' (choose from" in capsys.readouterr().err


@pytest.mark.promise("R181")
def test_pods_of_the_dump_use_their_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = {"requests": {"nvidia.com/gpu": "8"}}
    bound = {"nodeName": "b", "containers": [{"name": "c", "resources": requests}]}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": bound}
    done = {**pod, "status": {"phase": "Succeeded"}, "spec": {**bound, "nodeName": "c"}}
    dump = cluster(node("b", "b0", 8), node("c", "b1", 8), pod, done)
    assert simulated(tmp_path, dump, job(2), "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {placed["node"] for placed in found["placed"]} == {"c"}


@pytest.mark.promise("R181")
def test_a_gang_without_place_is_shown_with_the_reason_and_an_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = cluster(node("a", "b0", 4), node("b", "b1", 8), node("c", "b2", 2))
    request = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
    assert simulated(tmp_path, nodes, job(3, **request)) == 1
    assert capsys.readouterr().out == (
        "Gang train cannot be placed: 3 pods do not fit into one block; block b1 has capacity for 2 of 3. "
        "Use topogate.io/preferred-topology, or add nodes. "
        'Of 3 nodes, excluded: resource "nvidia.com/gpu": 1.\n'
    )


@pytest.mark.parametrize(
    ("pods", "remaining"),
    [(2, "one block: yes; one host: yes"), (4, "one block: yes; one host: no, it takes 2")],
)
@pytest.mark.parametrize("more", [(), ("--preferred", "block,host")], ids=["as written", "with an override"])
def test_each_preferred_level_is_shown_as_met_or_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], pods: int, remaining: str
) -> None:
    request = {} if more else {keys.PREFERRED_TOPOLOGY_ANNOTATION: "block,host"}
    nodes = cluster(node("a", "b0", 8), node("b", "b0", 8))
    assert simulated(tmp_path, nodes, job(pods, **request), *more) == 0
    assert f"\nPreferred: {remaining}.\n" in capsys.readouterr().out


def test_a_preferred_level_that_is_missing_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), job(2), "--preferred", "block,") == 2
    assert "'block,' names no level" in capsys.readouterr().err


def test_cards_are_chosen_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {keys.GPU_NUMBERS_LABEL: "0.1"}
    more: dict[str, Any] = {keys.I915: "20", keys.MILLICORES: "2000", "labels": labels}
    request = {"limits": {keys.I915: 1, keys.MILLICORES: 700}}
    containers = [{"name": "a", "resources": request}, {"name": "b"}, {"name": "c", "resources": request}]
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    assert simulated(tmp_path, cluster(node("a", "b0", 0, **more)), pod) == 0
    assert "  p  a  card0||card1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("kind: [", "neither YAML nor JSON"),
        ("a: b", "not a Kubernetes object"),
        ("kind: ConfigMap\nmetadata: {name: x}", "describes no pods"),
        (
            "kind: Job\nmetadata: {name: x}\nspec: {parallelism: many, template: {}}",
            "x: Expected `int | null`, got `str` - at `$.spec.parallelism`",
        ),
        (
            "kind: Job\nmetadata: {name: x}\nspec: {parallelism: -1, template: {}}",
            "x: -1 is not a number of pods",
        ),
        ("kind: Job\nmetadata: {name: x}\nspec: {}", "x has no pod template"),
        ("kind: Strange\nmetadata: {name: x}\nspec: {template: {}}", "cannot count the pods of Strange x"),
        ("kind: Pod\nmetadata: {name: x, labels: 3}", "x: Expected `object`, got `int`"),
        (
            "kind: Job\nmetadata: {name: x}\nspec: {template: {metadata: {labels: 3}, spec: 4}}",
            "x: Expected `object`, got `int` - at `$.spec.template.metadata.labels`",
        ),
        ("kind: Pod\nspec: {hostNetwork: true, containers: 3}", "pod: Expected `array`, got `int`"),
    ],
    ids=[
        "broken",
        "foreign",
        "no pods",
        "no number",
        "a negative number",
        "no template",
        "unknown workload",
        "wrong type",
        "in a template",
        "no containers",
    ],
)
def test_an_unusable_manifest_is_named_with_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], manifest: str, words: str
) -> None:
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), manifest) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_level_is_an_error_that_names_the_levels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), job(1), "--required", "zone") == 2
    assert 'no level "zone"; known: block, subblock, host and node' in capsys.readouterr().err


def resident(node: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    metadata = {"name": f"on-{node}", "namespace": namespace, "labels": {"app": "x", "version": "1"}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node, "containers": [], **spec}}


def nodes_of(printed: str) -> list[str]:
    return [line.split()[1] for line in printed.splitlines()[1:]]


def test_a_job_whose_pods_repel_each_other_by_its_name_gets_a_node_for_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = away_from({"matchLabels": {marks.JOB_NAME_LABEL: "train"}})
    nodes = cluster(node("a", "b0", 8), node("b", "b0", 8), node("c", "b0", 8))
    assert simulated(tmp_path, nodes, with_spec(job(3), **own)) == 0
    assert sorted(nodes_of(capsys.readouterr().out)) == ["a", "b", "c"]


def test_a_pod_of_the_dump_that_repels_or_is_repelled_keeps_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = away_from({"matchLabels": {"app": "x"}})
    theirs = away_from({"matchLabels": {marks.JOB_NAME_LABEL: "train"}})
    nodes = [node(name, "b0", 4) for name in "abc"]
    dump = cluster(*nodes, resident("a"), resident("b", **theirs), resident("c", "elsewhere", **theirs))
    assert simulated(tmp_path, dump, with_spec(job(1), **own)) == 0
    assert nodes_of(capsys.readouterr().out) == ["c"]


def test_match_label_keys_narrow_a_selector_to_pods_with_the_same_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = with_spec(job(1), **away_from({"matchLabels": {"app": "x"}}, matchLabelKeys=["version"]))
    dump = cluster(node("a", "b0", 4), resident("a"))
    for version, status in (("1", 1), ("2", 0)):
        body["spec"]["template"]["metadata"]["labels"] = {"version": version}
        assert simulated(tmp_path, dump, body) == status, capsys.readouterr()


def test_with_host_networking_every_port_of_a_container_is_the_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = {"name": "c", "ports": [{"containerPort": 80}]}
    taken = resident("a", hostNetwork=True, containers=[serving])
    dump = cluster(node("a", "b0", 4), node("b", "b0", 4), taken)
    body = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"hostNetwork": True, "containers": [serving]}}
    assert simulated(tmp_path, dump, body) == 0
    assert nodes_of(capsys.readouterr().out) == ["b"]
    assert simulated(tmp_path, cluster(node("a", "b0", 4), taken), body) == 1
    assert "Of 1 node, excluded: host port 80/TCP in use: 1." in capsys.readouterr().out


def test_a_rule_that_is_not_modelled_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = with_spec(job(1), resourceClaims=[{"name": "gpu"}])
    assert simulated(tmp_path, cluster(node("a", "b0", 4)), body) == 0
    assert "note: which nodes have devices for the claims (gpu) is not known here" in capsys.readouterr().err


@pytest.mark.promise("R181")
def test_the_map_shows_where_a_gang_is_placed_and_leaves_out_what_it_does_not_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = cluster(node("a", "b0", 4), node("b", "b1", 8), node("c", "b1", 8))
    assert simulated(tmp_path, nodes, job(3), "--map") == 0
    tree = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    assert [line[0] for line in tree] == ["b0", "b1", "r0"], "the subblock of b0 is not used"
    assert [line[1].count("+") for line in tree] == [0, 24, 24], "12 of 16 GPUs"
    assert "\033" not in "".join(tree[1])


def test_the_map_of_a_gang_that_does_not_fit_shows_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, cluster(node("a", "b0", 4)), job(3), "--map") == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("b0  ................................")


def test_a_map_and_json_at_once_are_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = cluster(node("a", "b0", 4))
    assert simulated(tmp_path, nodes, job(1), "--map", "--output", "json") == 2
    assert "--map" in capsys.readouterr().err


# --- gangs of several templates -------------------------------------------------------------------

CPU: dict[str, Any] = {"limits": {"cpu": 1}}
JOBSET_OVER = {marks.JOBSET_EXCLUSIVE: keys.GCE_TOPOLOGY[1]}


def racks(*sizes: int) -> dict[str, Any]:
    """Racks of so many nodes with 8 GPUs; two racks a block; and a node without GPUs in each block."""
    made = []
    for rack, size in enumerate(sizes):
        for host in range(size):
            made.append(node(f"r{rack}h{host}", f"b{rack // 2}", 8))
            made[-1]["metadata"]["labels"][keys.GCE_TOPOLOGY[1]] = f"r{rack}"
            made[-1]["spec"] = {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}
        if rack % 2 == 0:
            made.append(node(f"cpu{rack // 2}", f"b{rack // 2}", 0))
            made[-1]["metadata"]["labels"][keys.GCE_TOPOLOGY[1]] = f"none{rack}"
    return cluster(*made)


OF_SEVERAL = {
    "a driver on CPUs goes beside the workers": (
        owner("JobSet", {"replicatedJobs": [
            replicated("d", 1, 1, template(CPU)), replicated("w", 1, 4, template(WORKER))]}),
        [["cpu1"], ["r2h0", "r2h1", "r2h2", "r3h0"]],
    ),
    "Jobs with a domain each": (
        owner("JobSet", {"replicatedJobs": [replicated("w", 2, 2, template(WORKER))]}, JOBSET_OVER),
        [["r2h0", "r2h1"], ["r3h0", "r3h1"]],
    ),
    "subgroups with a domain each": (
        group({"size": 4, "subGroupPolicy": {"subGroupSize": 2}, "workerTemplate": template(WORKER)},
              {marks.LWS_SUBGROUP_EXCLUSIVE: keys.GCE_TOPOLOGY[1]}),
        [["r2h0", "r2h1"], ["r3h0", "r3h1"]],
    ),
}  # fmt: skip


@pytest.mark.promise("R181")
@pytest.mark.parametrize("what", OF_SEVERAL)
def test_a_gang_of_several_templates_is_placed_as_the_sweeper_places_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    manifest, expected = OF_SEVERAL[what]
    assert simulated(tmp_path, racks(2, 1, 3, 3), manifest, "--output", "json") == 0
    found = {each["member"]: each["node"] for each in json.loads(capsys.readouterr().out)["placed"]}
    in_order = sorted(found, key=natural)
    begins = list(accumulate(map(len, expected), initial=0))
    assert [
        sorted(found[name] for name in in_order[begin:end]) for begin, end in pairwise(begins)
    ] == expected


@pytest.mark.promise("R74")
def test_a_cpu_only_pod_costs_the_others_nothing_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, _ = OF_SEVERAL["a driver on CPUs goes beside the workers"]
    assert simulated(tmp_path, racks(2, 1, 3, 3), manifest) == 0
    assert capsys.readouterr().out.startswith(
        "Gang t: 4 pods on 1 block, 2 subblocks, 4 hosts, 4 nodes, 1 CPU-only near them\n"
    )


def test_a_domain_that_an_exclusive_job_of_the_dump_has_is_nobody_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"kind": "Pod", "metadata": {"name": "x", "annotations": JOBSET_OVER}}
    there["spec"] = {"nodeName": "r2h2", "containers": []}
    manifest, _ = OF_SEVERAL["Jobs with a domain each"]
    dump = racks(2, 1, 3, 3)
    dump["items"].append(there)
    assert simulated(tmp_path, dump, manifest) == 0
    assert nodes_of(capsys.readouterr().out) == ["r0h0", "r0h1", "r3h0", "r3h1"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"schedulerName": "volcano"}, "is not placed by topogate: other-scheduler"),
        ({"nodeName": "a"}, "is not placed by topogate: node-name-set"),
    ],
)
def test_a_pod_that_others_place_has_no_place(
    spec: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), with_spec(job(1), **spec)) == 1
    assert why in capsys.readouterr().out


@pytest.mark.promise("R325")
@pytest.mark.parametrize(
    "labels", [{}, {keys.INJECTION_LABEL: "disabled"}, {keys.INJECTION_LABEL: "enabled"}]
)
def test_a_pod_of_a_namespace_that_the_files_show_as_not_opted_in_has_no_place(
    labels: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    is_opted_in = labels == {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
    assert simulated(tmp_path, cluster(node("a", "b0", 8), namespace), job(1)) == (0 if is_opted_in else 1)
    assert ("namespace default is not opted in" in capsys.readouterr().out) == (not is_opted_in)


PLACED = "kube-scheduler places them, perhaps elsewhere"


@pytest.mark.promise("R325")
@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        (
            {"containers": [{"name": "c", "resources": {"limits": {"habana.ai/gaudi": 4}}}]},
            "add habana.ai/gaudi to gpus.resources of the configuration",
        ),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1}}}]},
            "annotate their pod template, for example with topogate.io/preferred-topology",
        ),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 0}}}]},
            "annotate their pod template, for example with topogate.io/preferred-topology",
        ),
        (
            {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
            "set gpus.deviceClasses in the configuration",
        ),
    ],
    ids=["another vendor", "CPU only", "no GPU of a known kind", "claims"],
)
def test_pods_that_admission_does_not_gate_are_placed_with_a_note_on_what_would_gate_them(
    spec: dict[str, Any], remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = with_spec(job(2), **spec)
    there = cluster(node("a", "b0", 8, **{"habana.ai/gaudi": "8"}))
    assert simulated(tmp_path, there, made) == 0
    found = capsys.readouterr()
    assert "Gang train: 2 pods on" in found.out
    assert "note: admission gates none of these pods" in found.err
    assert f"To have topogate place them, {remedy}" in found.err
    assert simulated(tmp_path, there, job(2)) == 0
    assert "admission gates none" not in capsys.readouterr().err
    made["metadata"]["name"] = "other"
    assert simulated(tmp_path, there, {"kind": "List", "apiVersion": "v1", "items": [job(2), made]}) == 0
    found = capsys.readouterr()
    assert "Gang train: 2 pods on" in found.out
    assert f"gates none of pods other-0, other-1, as they ask for no GPU that it knows: {PLACED}" in found.err
    assert f"To have topogate place them, {remedy}" in found.err


@pytest.mark.promise("R238")
def test_an_annotation_on_the_job_instead_of_its_pods_is_noted_as_lint_notes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = job(1)
    written["metadata"]["annotations"] = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), written) == 0
    assert (
        "note: Job/train: metadata.annotations: topogate.io/required-topology has no effect here: "
        "write it into the pod template\n"
    ) in capsys.readouterr().err


def test_the_patch_of_admission_is_shown_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {keys.PRIORITY_ANNOTATION: "high"}
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), job(1, **request), "--show-patch") == 0
    line = capsys.readouterr().err.splitlines()[0]
    operations = json.loads(line.removeprefix("Patch of pod train-0: "))
    changed = {each["path"]: each["value"] for each in operations}
    assert changed["/spec/priorityClassName"] == "gpu-high-priority"
    assert changed["/spec/schedulingGates"] == [{"name": keys.GATE}]


def test_the_configuration_of_the_files_overrides_the_shipped_one(tmp_path: Path) -> None:
    text = "apiVersion: topogate.io/v1beta1\nkind: Configuration\nmodels: [{name: Z9, labels: {model: z9}}]\n"
    config = {"kind": "ConfigMap", "metadata": {"name": NAME}, "data": {KEY: text}}
    nodes = [node("a", "b0", 8, labels={"model": "z9"})]
    request = {keys.GPU_MODEL_ANNOTATION: "z9"}
    assert simulated(tmp_path, cluster(*nodes), job(1, **request)) == 1
    assert simulated(tmp_path, cluster(*nodes, config), job(1, **request)) == 0


@pytest.mark.parametrize("amount", ["1.5", "500m", "-1"])
def test_amounts_that_the_api_server_refuses_are_reported(
    amount: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = job(1)
    wrong["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": amount}}
    assert simulated(tmp_path, cluster(node("a", "b0", 8)), wrong) == 2
    assert f"limits nvidia.com/gpu: {amount!r} is" in capsys.readouterr().err


def asking_for(**limits: str) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


GPUS, CPUS = asking_for(**{"nvidia.com/gpu": "4"}), asking_for(cpu="1")


def test_replicas_that_do_not_wait_for_one_another_are_placed_as_far_as_they_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 replicas where 4 fit: the sweeper places these."""
    manifest = {
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "x"},
        "spec": {"replicas": 20, "template": GPUS},
    }  # fmt: skip
    assert simulated(tmp_path, cluster(node("a", "b0", 8), node("b", "b0", 8)), manifest) == 0
    assert "4 pods on" in capsys.readouterr().out
