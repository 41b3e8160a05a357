"""`topogate top`: the GPUs of the cluster by model: how many there are, are free, and are waited for."""

import argparse
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from webhook.cli import session, works
from webhook.scheduling.gpus import MODEL_LABELS

if TYPE_CHECKING:
    from webhook.kube.client import Api

_ANY: Final = "(any)"
_OVER: Final = ("Succeeded", "Failed")


@dataclass
class Line:
    """One model. whole: nodes of which all GPUs are free; waiting: GPUs that unbound pods ask for."""

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
    session.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; 1 if nodes or pods are not for this user to see."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    lines = gather(session.connect(options, brief=True))
    if options.output in ("json", "yaml"):
        session.show({"kind": "GPUs", "models": [asdict(line) for line in lines]}, options.output)
        return 0
    if options.output == "name":
        print("\n".join(line.model for line in lines))
        return 0
    rows = [["MODEL", "NODES", "GPUS", "USED", "FREE", "WHOLE NODES FREE", "WAITED FOR"]]
    for line in lines:
        numbers = (line.nodes, line.total, line.used, line.free, line.whole, line.waiting)
        rows.append([line.model, *map(str, numbers)])
    print(session.table(rows))
    return 0


def gather(api: "Api") -> list[Line]:
    """One line a model. Raises ApiError."""
    lines: dict[str, Line] = {}
    model_of, room = {}, {}
    for node in session.pages(api, "/api/v1/nodes"):
        amounts = (node.get("status") or {}).get("allocatable") or {}
        gpus = sum(
            int(amount) for name, amount in amounts.items() if works.is_gpu(name) and amount.isdecimal()
        )
        if not gpus:
            continue
        labels = node["metadata"].get("labels") or {}
        model = next((labels[key] for key in MODEL_LABELS if labels.get(key)), "(unknown)")
        line = lines.setdefault(model, Line(model))
        line.nodes += 1
        line.total += gpus
        model_of[node["metadata"]["name"]], room[node["metadata"]["name"]] = model, gpus
    used: dict[str, int] = defaultdict(int)
    for pod in session.pages(
        api, "/api/v1/pods", fieldSelector=",".join(f"status.phase!={x}" for x in _OVER)
    ):
        asked, node_name = works.gpus_asked(pod["spec"]), pod["spec"].get("nodeName")
        if not asked:
            continue
        if node_name:
            used[node_name] += asked
        else:
            selector = pod["spec"].get("nodeSelector") or {}
            model = next((selector[key] for key in MODEL_LABELS if selector.get(key)), _ANY)
            lines.setdefault(model, Line(model)).waiting += asked
    for name, model in model_of.items():
        line = lines[model]
        line.used += used[name]
        line.free += max(0, room[name] - used[name])
        line.whole += not used[name]
    return sorted(lines.values(), key=lambda line: (line.model == _ANY, line.model))
