"""hack/demo: a gang from kubectl until it is placed, on a real control plane.

Ends with a table and a verdict; the exit status is 0 only if everything was as it should be.
"""

import argparse
import signal
import sys
import time

from hack.demos import real, workload
from hack.demos.command import topogate
from hack.demos.page import serve_page
from hack.demos.preview import show_preview
from hack.local import nodes
from hack.local import pods as facts
from hack.local.build import NoControlPlaneError, announce, clusters_folder, is_ready
from hack.local.cluster import Cluster, ClusterError
from hack.local.install import Installation, facts_of
from hack.local.nodes import Shape
from labeler.contract import keys
from webhook.cli.terminal import table
from webhook.kube.informer import Informer
from webhook.kube.objects import Pod
from webhook.text import counted
from webhook.workloads import marks

SHAPE = Shape(nodes=64, blocks=4, subblocks=2, gpus=8, intel=4)
DEADLINE_SECONDS = 90.0
NEXT = """
Next:
  hack/demo --ui                    the same, and the page over it
  hack/cluster up --topogate        a cluster to play with; it prints how to use it
  .venv/bin/topogate simulate -h    where a gang of yours would go, from files alone"""
TASK = "finetune"
TASK_WORKERS = 2


class Demo:
    """One run."""

    def __init__(self, cluster: Cluster, *, kill_sweeper: bool) -> None:
        """kill_sweeper: SIGKILL it as soon as the first pod of the gang has been released."""
        self.cluster = cluster
        self.installation = Installation(cluster)
        self.grid = nodes.grid(SHAPE)
        self.places = {node.name: node for node in self.grid}
        self.created: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self.kill_sweeper = kill_sweeper
        self.killed = False
        self.informer: Informer[Pod] | None = None

    def stop(self) -> None:
        """End the programs and the watch before their server ends."""
        if self.informer is not None:
            self.informer.stop()
        self.installation.stop()

    def run(self) -> int:
        """Do it all; returns the exit status."""
        api = self.cluster.api()
        announce(
            "Installing topogate (kubectl kustomize manifests/base, each program under its own identity) ..."
        )
        self.installation.set_up(facts_of(self.grid))
        self.installation.start()
        announce(f"Registering {SHAPE.nodes} simulated nodes in {SHAPE.blocks} blocks and labelling them ...")
        nodes.register(api, self.grid, labelled=False)
        self.installation.label(self.grid, self._labelled)
        self.cluster.make_namespace(workload.FOREIGN_NAMESPACE)
        self.cluster.make_namespace(workload.NAMESPACE, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        for path, each in workload.foreign_pods():
            api.request("POST", path, body=each)
        self._watch()
        announce(f"Creating a {workload.GANG_SIZE}-pod indexed Job and five single pods ...")
        for path, each in workload.objects():
            api.request("POST", path, body=each)
        self._wait_until_all_run()
        return max(self._check(), self._show_task())

    # --- steps ----------------------------------------------------------------------------------

    def _labelled(self, count: int) -> None:
        if count % 16 == 0:
            announce(f"  ... {count} of {SHAPE.nodes} nodes labelled")

    def _watch(self) -> None:
        path = f"/api/v1/namespaces/{workload.NAMESPACE}/pods"
        self.informer = Informer(self.cluster.api(), path, Pod, on_event=self._pod_event)
        self.informer.start()
        self.informer.wait_synced(10)

    def _pod_event(self, before: Pod | None, after: Pod | None) -> None:
        if after is None:
            return
        now, name = time.monotonic(), after.metadata.name
        self.created.setdefault(name, now)
        if after.status.phase == "Running":
            self.running.setdefault(name, now)
        if (
            self.kill_sweeper
            and marks.JOB_NAME_LABEL in after.metadata.labels
            and not after.spec.scheduling_gates
        ):
            program = self.installation.programs["sweeper"]
            if program.process is not None:
                program.process.send(signal.SIGKILL)
                self.kill_sweeper = False
                self.killed = True

    def _released(self) -> str:
        """How many pods of the gang have been released, as the API server has it."""
        path = f"/api/v1/namespaces/{workload.NAMESPACE}/pods"
        pods = self.cluster.api().json("GET", path, query={"labelSelector": f"job-name={workload.GANG}"})[
            "items"
        ]
        return f"{sum(not pod['spec'].get('schedulingGates') for pod in pods)} of {len(pods)}"

    def _wait_until_all_run(self) -> None:
        wanted = workload.GANG_SIZE + len(workload.objects()) - 1
        deadline = time.monotonic() + DEADLINE_SECONDS
        shown = -1
        while len(self.running) < wanted and time.monotonic() < deadline:
            for program in self.installation.programs.values():
                # As a kubelet would: what has ended is started again (the Job of the certificates is done).
                if program.process is not None and not program.process.alive:
                    announce(f"  ... {program.name} ended; {self._released()} pods of the gang were released")
                    program.start()
            if len(self.running) != shown and len(self.running) % 7 == 0:
                shown = len(self.running)
                announce(f"  ... {shown} of {wanted} pods run")
            time.sleep(0.1)

    # --- a task from the command line -----------------------------------------------------------

    def _show_task(self) -> int:
        """Start a GPUTask as a user does, until it runs; returns the exit status."""
        announce("\nStarting a GPU task of two workers: topogate run -m h100 -g 4 --workers 2 -p high ...")
        self._topogate(
            "run", "--name", TASK, "-m", "h100", "-g", "4", "--workers", "2", "-p", "high",
            "--image", "example",
        )  # fmt: skip
        path = f"/apis/falldio.com/v1/namespaces/{workload.NAMESPACE}/gputasks/{TASK}"

        def runs() -> bool:
            status = self.cluster.api().json("GET", path).get("status") or {}
            return status.get("phase") == "Running" and status.get("running") == TASK_WORKERS

        try:
            self.cluster.wait_for(f"the task {TASK} to run", runs, DEADLINE_SECONDS)
        except ClusterError as error:
            print(f"NOT AS IT SHOULD BE: {error}")
            return 1
        finally:
            print(self._topogate("ps", "--all"), end="")
        print(f"Simulated nodes run no containers; on real ones, topogate logs -f {TASK} follows both.")
        self._topogate("stop", TASK)
        return 0

    def _topogate(self, *words: str) -> str:
        """What the command prints. Raises ClusterError with its words if it fails."""
        result = topogate(self.cluster, workload.NAMESPACE, *words)
        if result.returncode:
            raise ClusterError(f"topogate {' '.join(words)}: {result.stderr.strip()}")
        return result.stdout

    # --- the end --------------------------------------------------------------------------------

    def _check(self) -> int:
        pods = self.cluster.api().json("GET", f"/api/v1/namespaces/{workload.NAMESPACE}/pods")["items"]
        gang = workload.members(pods)
        heading = ("POD", "RANK", "NODE", "BLOCK/SUBBLOCK/HOST", "CARDS", "PRIORITY", "SECONDS TO RUNNING")
        others = [pod for pod in pods if pod not in gang]
        rows = [heading, *(self._row(pod) for pod in [*gang, *others])]
        print(table(rows, is_full_width=True))
        there, possible = (
            f"{counted(of_blocks, 'block')}, {counted(of_subblocks, 'subblock')}"
            for of_blocks, of_subblocks in (workload.spread(gang, self.places), workload.BEST)
        )
        print(f"\nThe gang runs in {there}; the best possible is {possible}.")
        found = workload.faults(pods, self.places)
        for sentence in found:
            print(f"NOT AS IT SHOULD BE: {sentence}")
        return 1 if found else 0

    def _row(self, pod: facts.Json) -> tuple[str, ...]:
        name, spec, node = pod["metadata"]["name"], pod["spec"], self.places.get(facts.bound_node(pod))
        return (
            name,
            facts.annotation(pod, marks.JOB_INDEX_KEY) or "-",
            node.name if node else "-",
            "/".join(node.place) if node else "-",
            facts.annotation(pod, keys.GAS_CARDS_ANNOTATION) or "-",
            f"{spec.get('priority', 0)} {spec.get('priorityClassName', '')}".strip(),
            f"{self.running[name] - self.created[name]:.2f}" if name in self.running else "never",
        )


def main() -> int:
    """Run hack/demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up and print its KUBECONFIG")
    parser.add_argument(
        "--kill-sweeper",
        action="store_true",
        help="kill the sweeper in the middle of the gang and start it again",
    )
    parser.add_argument(
        "--real-node",
        action="store_true",
        help="another demo: cards on a real kubelet, looked at inside the containers; needs root",
    )
    parser.add_argument("--ui", action="store_true", help="end with the page's address, until interrupted")
    arguments = parser.parse_args()
    if arguments.real_node:
        if arguments.kill_sweeper or arguments.ui:
            parser.error("--real-node is a demo of its own: of the other arguments it takes --keep alone")
        return real.run(keep=arguments.keep)
    folder = clusters_folder() / "demo"
    started = time.monotonic()
    try:
        if not is_ready():
            announce("While the control plane is built, this is where the demo's gang will go:")
            show_preview(nodes.grid(SHAPE))
        announce(
            "Starting a control plane: etcd, kube-apiserver, controllers, scheduler, simulated kubelets ..."
        )
        cluster = Cluster.up(folder, tied=not arguments.keep)
    except (ClusterError, NoControlPlaneError) as error:
        print(f"hack/demo: {error}", file=sys.stderr)
        return 1
    demo = Demo(cluster, kill_sweeper=arguments.kill_sweeper)
    try:
        if cluster.programs.missing:
            raise ClusterError(f"{cluster.programs.origin} has no {', '.join(cluster.programs.missing)}")
        status = demo.run()
        if arguments.kill_sweeper and not demo.killed:
            raise ClusterError("the sweeper was not killed: no release of the gang was seen in time")
        print(f"{'As it should be' if status == 0 else 'FAILED'}, after {time.monotonic() - started:.0f} s.")
        print(NEXT)
        if arguments.ui:
            serve_page(cluster)
    except ClusterError as error:
        print(f"hack/demo: {error}", file=sys.stderr)
        status = 1
    finally:
        if arguments.keep:
            demo.installation.leave_to_cluster()
            print(f"export KUBECONFIG={cluster.kubeconfig}   # and later: hack/cluster down --name demo")
        else:
            demo.stop()
            cluster.down()
    return status


if __name__ == "__main__":
    sys.exit(main())
