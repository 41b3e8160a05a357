"""`topogate lint` on wrong manifests, one fault each, and on the examples."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT
from tests.cli.jobs import TOPOGATE, job, pod_spec
from webhook.cli.main import main
from webhook.configuration.shipped_configuration import shipped_classes, shipped_configuration

PAGE = ROOT / "docs/users/manifests.md"
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))


def task(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "falldio.com/v1", "kind": "GPUTask", "metadata": {"name": "t"}, "spec": spec}


def templated(**annotations: str) -> dict[str, Any]:
    """A GPUTask's template."""
    own = {TOPOGATE + key.replace("_", "-"): value for key, value in annotations.items()}
    return {"metadata": {"annotations": own}, "spec": {"containers": [{"name": "main", "image": "x"}]}}


def deployment_of(made: dict[str, Any]) -> dict[str, Any]:
    """A Deployment with the template of a Job."""
    spec = {"replicas": 4, "template": made["spec"]["template"]}
    return {**made, "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}


def on_the_job(**annotations: str) -> dict[str, Any]:
    made = job()
    made["metadata"]["annotations"] = {TOPOGATE + k.replace("_", "-"): v for k, v in annotations.items()}
    return made


def labelled(**labels: str) -> dict[str, Any]:
    made = job()
    made["spec"]["template"]["metadata"]["labels"] = {
        TOPOGATE + k.replace("_", "-"): v for k, v in labels.items()
    }
    return made


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelled key": (job(gangsize="4"), "did you mean topogate.io/gang-size?"),
    "a key of another word": (job(colour="red"), "topogate knows no such annotation"),
    "a gang without a size": (job(gang="ring"), "topogate.io/gang needs topogate.io/gang-size"),
    "a gang without a name": (job(gang="", gang_size="4"), "topogate.io/gang is empty"),
    "a size that is no number": (job(gang_size="four"), "is not a positive whole number"),
    "a size that its controller contradicts": (job(gang_size="16"), "gang-size 16, but 4 pods are made"),
    "a size on replicas": (deployment_of(job(gang_size="16")), "gang-size 16 has no effect: such pods"),
    "a minimum above the size": (job(gang_size="4", gang_min_size="8"), "more than topogate.io/gang-size 4"),
    "a minimum above what is made": (job(gang_min_size="8"), "gang-min-size 8, but 4 pods are made"),
    "a level that is none": (job(required_topology="rack"), 'no level "rack"; known: block'),
    "a preferred level above the required one": (
        job(required_topology="subblock", preferred_topology="block"), "is not below the required subblock",
    ),
    "slices without a size": (job(slice_topology="host"), "needs topogate.io/slice-size"),
    "slices that do not divide the gang": (
        job(slice_topology="host", slice_size="3", gang_size="4"),
        "is not a multiple of topogate.io/slice-size 3",
    ),
    "slices that do not divide the Job": (
        job(slice_topology="host", slice_size="3"), "4 pods do not divide into slices of 3",
    ),
    "a spread with a wrong number": (job(spread_topology="block:many"), "is not a positive whole number"),
    "a model that is none": (job(gpu_model="h1000"), "did you mean H100 or A100 80GB?"),
    "a tier that is none": (job(priority="urgent"), 'no tier "urgent"; allowed here: low, medium and high'),
    "a model that does not offer the resource": (
        job(spec=pod_spec(limits={"amd.com/gpu": 1}), gpu_model="h100"), "but the pod asks for amd.com/gpu",
    ),
    "a word that does not opt out": (job(inject="no"), 'to opt out write "false"'),
    "an annotation on the Job": (on_the_job(required_topology="block"), "write it into the pod template"),
    "an annotation among the labels": (labelled(gang_size="4"), "write it as an annotation"),
    "half a GPU": (job("500m"), "'500m' is not a whole number"),
    "a negative number of GPUs": (job("-1"), "'-1' is negative"),
    "a fraction of a GPU": (job("1.5"), "'1.5' is not a whole number"),
    "requests without limits": (job(spec=pod_spec(requests={"nvidia.com/gpu": 1})), "without limits"),
    "a task of a model that is none": (task(gpu="h1000"), 'gpu: no GPU model "h1000"'),
    "a task of a level that is none": (task(topology={"required": "rack"}), 'no level "rack"; known: block'),
    "a task of a size that is not its workers'": (
        task(workers=2, template=templated(gang_size="4")), "gang-size 4, but 2 pods are made",
    ),
    "a task with a misspelled key": (
        task(template=templated(gangsize="4")), "did you mean topogate.io/gang-size?",
    ),
}  # fmt: skip


def linted(tmp_path: Path, text: str, *more: str) -> int:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    return main(["lint", str(file), *more])


@pytest.mark.promise("R238")
@pytest.mark.parametrize(("manifest", "expected"), WRONG.values(), ids=WRONG)
def test_the_fault_of_a_wrong_manifest_is_found(
    manifest: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert linted(tmp_path, yaml.safe_dump(manifest)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if expected in line], lines
    where = f"m.yaml: {manifest['kind']}/{manifest['metadata']['name']}: "
    assert all(where in line for line in lines)


def test_the_page_on_manifests_shows_what_lint_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failed? Copy what is printed to docs/users/manifests.md, with the known models cut after the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(job("1.5", gpu_model="h1000", gang_size="16")))
    assert main(["lint", "train.yaml"]) == 1
    printed = re.sub(r"(known: \w+),.*", r"\1, ...", capsys.readouterr().out)
    assert f"topogate lint train.yaml\n```\n\n```\n{printed}```" in PAGE.read_text()


@pytest.mark.promise("R238")
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_have_no_fault(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(file)]) == 0, capsys.readouterr().out


def test_a_yaml_error_is_one_line_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert linted(tmp_path, "kind: Job\nspec: {a: [1, 2}\n") == 2
    expected = capsys.readouterr().err
    assert "line 2, column 16" in expected
    assert "\\n" not in expected
    assert expected.count("\n") == 1


def test_the_shipped_configuration_and_classes_are_those_of_the_manifests() -> None:
    base = ROOT / "manifests" / "base"
    config = yaml.safe_load((base / "configuration.yaml").read_text())
    shipped = ROOT / "webhook" / "configuration"
    assert (shipped / "shipped-configuration.yaml").read_text() == config["data"]["configuration.yaml"]
    assert (shipped / "shipped-priorityclasses.yaml").read_text() == (
        base / "priorityclasses.yaml"
    ).read_text()
    assert {tier.priority_class_name for tier in shipped_configuration().policy.tiers} == set(
        shipped_classes()
    )


@pytest.mark.promise("R334")
def test_objects_that_share_a_gang_by_mistake_are_named_also_from_file_to_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copied template: each of the Jobs makes as many pods as the gang should have."""
    files = [tmp_path / f"{name}.yaml" for name in "abc"]
    for file in files:
        made = job(gang="train", gang_size="4")
        made["metadata"] = {"name": file.stem}
        file.write_text(yaml.safe_dump(made))
    assert main(["lint", *map(str, files)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{file}: Job/{file.stem}: topogate.io/gang-size is 4, but more pods of {shared} are in this gang: "
        "give each gang a topogate.io/gang of its own, or correct the size"
        for file, shared in zip(files[1:], ("Job/a, Job/b", "Job/a, Job/b, Job/c"), strict=True)
    ]


@pytest.mark.promise("R334")
def test_objects_that_rightly_share_a_gang_have_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    parts = [job(gang="train", gang_size="8"), job(gang="train", gang_size="8")]
    parts[1]["metadata"] = {"name": "workers"}
    file.write_text(yaml.safe_dump_all(parts))
    assert main(["lint", str(file)]) == 0
