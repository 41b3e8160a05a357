"""The commands on the pages for users and operators, run as they stand there on a control plane."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.cluster.typed import Typed, run
from tests.installation import installed_on
from tests.repository.pages import DOCS
from tests.support import create_namespace, delete, delete_namespace, wait_for_pods

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
    "kubectl apply -k manifests/components/monitoring": "tests/monitoring: it needs the operator's CRDs",
    "kubectl exec -n topogate-labeler": "tests/labeler: the simulated nodes run no containers",
    "topogate run --follow": "tests/node/test_demo.py: it needs containers",
    "topogate logs": "tests/node/test_demo.py: it needs containers",
    "topogate exec": "tests/node: it needs containers",
    "topogate ui": "tests/ui: it serves until Ctrl-C",
    "kubectl get configmap topogate-policy": "tests/cluster/test_upgrade.py: v0.1 has it",
    "kubectl delete configmap topogate-policy": "tests/cluster/test_upgrade.py: v0.1 has it",
    "topogate config migrate": "tests/configuration/test_migrate.py: it takes the files of v0.1",
    "topogate config check configuration.yaml": "tests/configuration/test_migrate.py: that has made it",
}
"""Beginnings of commands that are not run here, and what runs them."""

PRINTS: Final = ("topogate simulate", "topogate lint", "topogate explain")
"""Commands that print the same on the same cluster, but for the names of pods."""

MADE_NAME: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
"""The end of a pod's name, as its controller draws it."""

PATIENCE: Final = 120.0
"""Seconds in which a command comes to print what a page shows."""

READER: Final = ROOT / "manifests/components/reader/role.yaml"
READER_BINDING: Final = "topogate-readers-of-a-test"

UNINSTALL: Final = "\n## Uninstall\n"
"""From this heading on, commands remove what the others need, see tests/cluster/test_leaving.py."""


def commands(page: Path) -> list[str]:
    """The commands of a page that are run here, each as one line."""
    found = FENCE.findall(page.read_text().partition(UNINSTALL)[0])
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


def pages_to_run() -> list[Path]:
    """Pages with commands that no page before them has."""
    found: dict[str, Path] = {}
    for page in DOCS:
        for command in commands(page):
            found.setdefault(command, page)
    return list(dict.fromkeys(found.values()))


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on twelve labelled nodes."""
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


@pytest.fixture
def shell(installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Shell":
    return Shell(installed, tmp_path, monkeypatch)


class Shell:
    """A shell in which commands of the pages are typed, in a folder with the files that they read."""

    def __init__(self, installed: Installation, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The environment is this process's, since `topogate` runs in it."""
        self.cluster, self.api, self._folder = installed.cluster, installed.api, folder
        (folder / "manifests").symlink_to(ROOT / "manifests")
        (folder / "train.yaml").symlink_to(ROOT / EXAMPLE)
        self.kubeconfig = folder / "kubeconfig"
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PATH", f"{self.cluster.write_tools()}:{os.environ['PATH']}")
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("KUBECONFIG", str(self.kubeconfig))

    @contextmanager
    def team(self) -> Iterator[str]:
        """The namespace that the pages call team-a, which the kubeconfig names."""
        name = create_namespace(self.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        self.write_kubeconfig(name)
        yield name
        delete_namespace(self.cluster, name)

    def write_kubeconfig(self, namespace: str, token: str = "") -> None:
        """The administrator's kubeconfig, or that of whom a token is, with the namespace of a team."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        for each in config["contexts"]:
            each["context"]["namespace"] = namespace
            if token:
                each["context"]["user"] = config["users"][0]["name"]
        if token:
            config["users"][0]["user"] = {"token": token}
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def write_manifests(self, page: Path) -> None:
        for name, text in manifests(page).items():
            (self._folder / name).write_text(text)

    def types(self, command: str) -> Typed:
        """Run a line: `topogate` in this process, unless the line needs a shell."""
        words = shlex.split(command, comments=True)
        if words[0] == "topogate" and not set("|>$") & set(command):
            return run(*words[1:])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
        )
        return Typed(done.returncode, done.stdout, done.stderr)


def faults_of(shell: Shell, page: Path) -> list[str]:
    """The commands of a page that fail, where one pod of a gang runs, which they name."""
    with shell.team() as team:
        create_job(shell.api, team, "there", 1, {"nvidia.com/gpu": 1})
        (pod,) = wait_for_pods(shell.cluster, team, all_run(1), "a pod to ask about")
        shell.write_manifests(page)
        places = {"NAMESPACE": team, "team-a": team, "namespace default": f"namespace {team}"}
        places |= {"NAME": pod["metadata"]["name"], "NODE": pod["spec"]["nodeName"]}
        faults = []
        for command in commands(page):
            line = re.sub(rf"\b({'|'.join(places)})\b", lambda found: places[found[1]], command)
            done = shell.types(line)
            if done.status:
                faults.append(f"{page.relative_to(ROOT)}: {line}\n{done.out}{done.err}")
    return faults


def test_each_command_of_the_pages_succeeds(shell: Shell) -> None:
    """Commands that several pages have are run with the first of them."""
    faults = [fault for page in pages_to_run() for fault in faults_of(shell, page)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "page", [page for page in DOCS if manifests(page)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_command_prints_what_its_page_shows(shell: Shell, page: Path) -> None:
    """Failed? Run the command on `hack/cluster up --topogate --nodes 12 --blocks 2 --intel 2`, and copy."""
    shell.write_manifests(page)
    with shell.team() as team:

        def printed(command: str) -> str:
            done = shell.types(command.replace("team-a", team))
            return MADE_NAME.sub("-NAME", done.out.replace(team, "team-a")) or done.err

        for command, output in steps(page):
            wanted, found = MADE_NAME.sub("-NAME", output), printed(command)
            deadline = time.monotonic() + PATIENCE
            while output and found != wanted:  # the sweeper may not have looked yet
                assert time.monotonic() < deadline, f"{command} prints\n{found}"
                time.sleep(0.1)
                found = printed(command)


@pytest.mark.promise("R294")
def test_a_user_may_do_what_the_page_on_rights_lists(shell: Shell) -> None:
    """The user has the ClusterRole edit in the namespace. Placements, Events and tasks need no more."""
    everybody = ["kubectl get placements", "kubectl get events", "topogate ps", "topogate lint train.yaml"]
    readers = ["explain waits", "gangs", "map", "top", "nodes"]
    readers += ["simulate train.yaml", "lint --cluster train.yaml"]
    reader = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{READER_BINDING}"
    kubectl = shell.cluster.kubectl

    def allowed() -> list[str]:
        """What the user may do of what readers may."""
        return [each for each in readers if shell.types(f"topogate {each}").status == 0]

    with shell.team() as team:
        create_job(shell.api, team, "waits", 13, {"nvidia.com/gpu": 8})
        user = f"system:serviceaccount:{team}:user"
        kubectl("create", "serviceaccount", "user", f"--namespace={team}")
        kubectl(
            "create", "rolebinding", "user", "--clusterrole=edit", f"--user={user}", f"--namespace={team}"
        )
        token = kubectl("create", "token", "user", f"--namespace={team}").stdout.strip()
        wait_for_pods(
            shell.cluster, team, lambda pods: len(pods) == 13, "the pods of a gang that is too large"
        )
        shell.write_kubeconfig(team, token)
        shell.cluster.wait_for("the user's rights", lambda: shell.types(everybody[0]).status == 0)
        assert [each for each in everybody if shell.types(each).status] == []
        assert allowed() == []
        kubectl("apply", f"--filename={READER}")
        kubectl(
            "create", "clusterrolebinding", READER_BINDING, "--clusterrole=topogate-reader", f"--user={user}"
        )
        try:
            shell.cluster.wait_for("the rights of readers", lambda: allowed() == readers)
        finally:
            delete(shell.api, reader)


def test_what_a_page_names_is_run_here_or_by_a_test_that_exists() -> None:
    """A command that is added to a page runs here unless the table above names the test that runs it."""
    tests = {text.partition(":")[0] for text in ELSEWHERE.values() if text.startswith("tests/")}
    assert {each for each in (*tests, "tests/cluster/test_leaving.py") if not (ROOT / each).exists()} == set()
    assert sum(len(commands(page)) for page in pages_to_run()) > 20
