"""The commands on the pages for users and operators, run as they stand there on a control plane."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.jobs import all_run, create_job
from tests.installation import installed_on
from tests.repository.pages import DOCS
from tests.support import create_namespace, delete_namespace, wait_for_pods

SHAPE: Final = nodes.Shape(nodes=12, blocks=2, subblocks=2, gpus=8, intel=2)
FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHELL: Final = ("", "sh", "bash", "console")
COMMAND: Final = re.compile(r"(?:\$ )?((?:sudo )?(?:kubectl|topogate|helm|hack/[a-z-]+|sed|pipx|skopeo)\b.*)")
EXAMPLE: Final = "manifests/examples/01-indexed-job.yaml"

ELSEWHERE: Final = {
    "hack/demo": "tests/cluster/test_demo.py",
    "sudo hack/demo": "tests/node/test_demo.py",
    "hack/test": "tests/repository/test_commands.py",
    "hack/env": "whatever runs a test",
    "hack/image": "tests/images",
    "hack/cluster": "tests/cluster/test_hack_cluster.py",
    "helm": "tests/releases/test_chart.py",
    "skopeo": "tests/images: it needs a registry",
    "pipx": "tests/releases/test_release.py: it fetches from a package registry",
    "sed -i": "tests/manifests/test_manifests.py",
    "kubectl apply --server-side -k": "tests/cluster/test_from_kubectl_to_placed.py",
    "kubectl get certificates": "tests/node/test_with_cert_manager.py: it needs cert-manager's CRDs",
    "kubectl exec -n topogate-labeler": "tests/labeler: the simulated nodes run no containers",
    "topogate run --follow": "tests/node/test_demo.py: it needs containers",
    "topogate logs": "tests/node/test_demo.py: it needs containers",
    "topogate exec": "tests/node: it needs containers",
    "topogate ui": "tests/ui: it serves until Ctrl-C",
    "topogate policy render": "tests/admission/test_rendering.py: it writes into the checkout",
}
"""Beginnings of commands that are not run here, and what runs them."""

PRINTS: Final = ("topogate simulate", "topogate lint", "topogate explain")
"""Commands that print the same on the same cluster, but for the names of pods."""

MADE_NAME: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
"""The end of a pod's name, as its controller draws it."""

PATIENCE: Final = 30.0
"""Seconds in which a command comes to print what a page shows: the sweeper may not have looked yet."""

READER: Final = ROOT / "manifests/components/reader/role.yaml"

TORN_DOWN: Final = "docs/operators/uninstall.md"
"""Its commands remove what the others need, see tests/cluster/test_leaving.py."""


def commands(page: Path) -> list[str]:
    """The commands of a page that are run here, each as one line."""
    found = FENCE.findall(page.read_text())
    blocks = [
        re.sub(f"^{indent}", "", body, flags=re.M) for indent, language, body in found if language in SHELL
    ]
    text = "\n".join(blocks)
    lines = re.sub(r"(\\|\|)\n\s*", lambda found: "| " if found[1] == "|" else "", text).splitlines()
    written = [match[1] for line in lines if (match := COMMAND.fullmatch(line))]
    return [each for each in written if not each.startswith(tuple(ELSEWHERE))]


def manifests(page: Path) -> dict[str, str]:
    """The files that the commands of a page take: its blocks of YAML that begin with a file's name."""
    blocks = [body for _, language, body in FENCE.findall(page.read_text()) if language == "yaml"]
    return {match[1]: body for body in blocks if (match := re.match(r"# ([a-z-]+\.yaml)\n", body))}


def steps(page: Path) -> list[tuple[str, str]]:
    """The commands of a page that are run here, each with what it prints if that stands below it."""
    blocks = FENCE.findall(page.read_text())
    found = [(command, "") for command in commands(page)]
    for (_, language, above), (_, other, below) in pairwise(blocks):
        last = above.strip().rpartition("\n")[2]
        if language in SHELL and other in SHELL and last.startswith(PRINTS) and not COMMAND.match(below):
            found[found.index((last, ""))] = (last, below)
    return found


PAGES: Final = [path for path in DOCS if path.relative_to(ROOT) != Path(TORN_DOWN) and commands(path)]


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on twelve labelled nodes."""
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


@pytest.fixture
def team(installed: Installation) -> Iterator[str]:
    """The namespace that the pages call team-a, with a gang of which one pod is asked about."""
    name = create_namespace(installed.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    create_job(installed.api, name, "there", 1, {"nvidia.com/gpu": 1})
    wait_for_pods(installed.cluster, name, all_run(1), "a pod to ask about")
    yield name
    delete_namespace(installed.cluster, name)


def kubeconfig_of(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """The administrator's kubeconfig with the namespace of a team."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for each in config["contexts"]:
        each["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def prepare(cluster: Cluster, namespace: str, folder: Path, page: Path) -> dict[str, str]:
    """Write what a page's commands read into a folder. Returns the environment of commands that run there."""
    (folder / "manifests").symlink_to(ROOT / "manifests")
    (folder / "train.yaml").symlink_to(ROOT / EXAMPLE)
    for name, text in manifests(page).items():
        (folder / name).write_text(text)
    return {
        "PATH": f"{cluster.write_tools()}:{os.environ['PATH']}",
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig_of(cluster, namespace, folder)),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_of_a_page_succeeds(
    installed: Installation, team: str, tmp_path: Path, page: Path
) -> None:
    (pod,) = installed.api.json("GET", f"/api/v1/namespaces/{team}/pods")["items"]
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    places = {"NAMESPACE": team, "team-a": team, "namespace default": f"namespace {team}"}
    places |= {"NAME": name, "NODE": node}
    environment = prepare(installed.cluster, team, tmp_path, page)
    for command in commands(page):
        words = re.sub(rf"\b({'|'.join(places)})\b", lambda found: places[found[1]], command)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if manifests(page)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_command_prints_what_its_page_shows(installed: Installation, tmp_path: Path, page: Path) -> None:
    """Failed? Run the command on `hack/cluster up --topogate --nodes 12 --blocks 2 --intel 2`, and copy."""
    namespace = create_namespace(installed.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    environment = prepare(installed.cluster, namespace, tmp_path, page)

    def printed(command: str) -> str:
        done = subprocess.run(
            command.replace("team-a", namespace).split(),
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return MADE_NAME.sub("-NAME", done.stdout.replace(namespace, "team-a")) or done.stderr

    for command, output in steps(page):
        wanted, found = MADE_NAME.sub("-NAME", output), printed(command)
        deadline = time.monotonic() + PATIENCE
        while output and found != wanted:
            assert time.monotonic() < deadline, f"{command} prints\n{found}"
            time.sleep(0.5)
            found = printed(command)
    delete_namespace(installed.cluster, namespace)


@pytest.mark.parametrize("is_reader", [False, True], ids=["edit", "edit and the component reader"])
def test_a_user_may_do_what_the_page_on_rights_lists(
    installed: Installation, team: str, tmp_path: Path, is_reader: bool
) -> None:
    """The user has the ClusterRole edit in the namespace. Placements, Events and tasks need no more."""
    cluster, page = installed.cluster, ROOT / "docs/users/rights.md"
    environment = prepare(cluster, team, tmp_path, page)
    user = f"system:serviceaccount:{team}:user"
    create_job(installed.api, team, "waits", 13, {"nvidia.com/gpu": 8})
    wait_for_pods(cluster, team, lambda pods: len(pods) == 14, "the pods of a gang that is too large")
    cluster.kubectl("create", "serviceaccount", "user", f"--namespace={team}")
    cluster.kubectl(
        "create", "rolebinding", "user", "--clusterrole=edit", f"--user={user}", f"--namespace={team}"
    )
    config = yaml.safe_load(Path(environment["KUBECONFIG"]).read_text())
    token = cluster.kubectl("create", "token", "user", f"--namespace={team}").stdout.strip()
    config["users"][0]["user"] = {"token": token}
    for each in config["contexts"]:
        each["context"]["user"] = config["users"][0]["name"]
    Path(environment["KUBECONFIG"]).write_text(yaml.safe_dump(config))
    if is_reader:
        cluster.kubectl("apply", f"--filename={READER}")
        cluster.kubectl(
            "create", "clusterrolebinding", team, "--clusterrole=topogate-reader", f"--user={user}"
        )

    def succeeds(command: str) -> bool:
        done = subprocess.run(
            command.split(), cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
        )
        return done.returncode == 0

    everybody = ["kubectl get placements", "kubectl get events", "topogate ps", "topogate lint train.yaml"]
    readers = ["explain waits", "gangs", "map", "top", "nodes"]
    readers += ["simulate train.yaml", "lint --cluster train.yaml"]
    try:
        assert {each: succeeds(each) for each in everybody} == dict.fromkeys(everybody, True)
        found = {each: succeeds(f"topogate {each}") for each in readers}
        assert found == dict.fromkeys(readers, is_reader)
    finally:
        cluster.kubectl("delete", "clusterrolebinding", team, "--ignore-not-found")


def test_what_a_page_names_is_run_here_or_by_a_test_that_exists() -> None:
    """A command that is added to a page runs here unless the table below names the test that runs it."""
    tests = {text.partition(":")[0] for text in ELSEWHERE.values() if text.startswith("tests/")}
    assert {each for each in (*tests, "tests/cluster/test_leaving.py") if not (ROOT / each).exists()} == set()
    assert sum(len(commands(page)) for page in PAGES) > 20
