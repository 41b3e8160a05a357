"""`topogate top`: the GPUs of the cluster by model: total, free, and waited for.

A shared card counts as one card, in use when any share of it is; a MIG instance counts as one, of its own
model. On a node that takes no pods, such as a cordoned one, only GPUs in use count.
"""

import argparse
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from webhook.cli import scene, session
from webhook.cli.terminal import table

if TYPE_CHECKING:
    from webhook.inquiry.cluster_state import ClusterReading
    from webhook.placement.snapshot import NodeState
    from webhook.scheduling.gpus import Counting

_ANY: Final = "(any)"
_UNKNOWN: Final = "(unknown)"


@dataclass
class Line:
    """One model. whole: nodes whose GPUs are all free; waiting: GPUs that unbound pods ask for."""

    model: str
    nodes: int = 0
    total: int = 0
    used: int = 0
    free: int = 0
    whole: int = 0
    waiting: int = 0


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("top", help="GPUs by model", description=__doc__)
    session.add_connection(parser)
    session.add_selector(parser, "nodes")
    session.add_watch(parser)
    session.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; 1 if the user may not read nodes or pods."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    api = session.connect(options, brief=True)
    # Loaded once the cluster's address is known: a mistake in a kubeconfig is reported faster.
    from webhook.inquiry.cluster_state import ClusterReading

    return session.repeat(
        options,
        lambda: _print(gather(scene.of_selected(ClusterReading.read_usage(api), api, options)), options),
    )


def _print(lines: list[Line], options: argparse.Namespace) -> None:
    if options.output in ("json", "yaml"):
        session.show({"kind": "GPUs", "models": [asdict(line) for line in lines]}, options.output)
        return
    if options.output == "name":
        print("\n".join(line.model for line in lines))
        return
    rows = [["MODEL", "NODES", "GPUS", "USED", "FREE", "WHOLE NODES FREE", "WAITED FOR"]]
    for line in lines:
        numbers = (line.nodes, line.total, line.used, line.free, line.whole, line.waiting)
        rows.append([line.model, *map(str, numbers)])
    print(table(rows, is_full_width=options.output == "wide"))


def gather(cluster: "ClusterReading") -> list[Line]:
    """One line a model."""
    from webhook.configuration.settings import Settings
    from webhook.inquiry.resource_adder import view_of
    from webhook.scheduling.gpu_counts import gpus_of
    from webhook.sweeper.observe.snapshotter import Snapshotter

    settings = Settings()
    counting = settings.counting
    snapshotter = Snapshotter(cluster, settings)
    snapshot = snapshotter.snapshot(view_of(snapshotter, cluster, settings))
    lines: dict[str, Line] = {}
    for state in snapshot.nodes.values():
        _add_node(lines, state, counting)
    for pod in cluster.pods:
        if not pod.spec.node_name and (asked := gpus_of(pod, counting)):
            _line(lines, counting.model(pod.spec.node_selector) or _ANY).waiting += asked
    return sorted(lines.values(), key=lambda line: (line.model == _ANY, line.model))


def _add_node(lines: dict[str, Line], state: "NodeState", counting: "Counting") -> None:
    from webhook.scheduling.gpu_counts import node_gpus, used_gpus
    from webhook.ui.picture import excluded_because

    counts = [(each, used_gpus(state, each)) for each in node_gpus(state.node, counting)]
    is_excluded = bool(excluded_because(state))
    is_free = not is_excluded and not any(used for _, used in counts)
    for found, used in counts:
        line = _line(lines, found.model or _UNKNOWN)
        there = used if is_excluded else found.gpus
        line.nodes += 1
        line.total += there
        line.used += used
        line.free += there - used
        line.whole += is_free


def _line(lines: dict[str, Line], model: str) -> Line:
    return lines.setdefault(model, Line(model))
