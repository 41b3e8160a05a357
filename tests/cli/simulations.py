"""Manifests and clusters for topogate simulate, and what it says of them."""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from labeler.contract import keys
from webhook.cli import simulate


def node(name: str, block: str, gpus: int, **more: Any) -> dict[str, Any]:
    labels = dict(zip(keys.GCE_TOPOLOGY, (block, "r0", name), strict=True))
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels | more.pop("labels", {}), "creationTimestamp": None},
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpus)} | more,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def job(pods: int, **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 4}, "requests": None}}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "creationTimestamp": None},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def simulated(tmp_path: Path, cluster: object, manifest: object, *more: str) -> int:
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    (tmp_path / "job.yaml").write_text(manifest if isinstance(manifest, str) else yaml.safe_dump(manifest))
    parser = argparse.ArgumentParser()
    simulate.add_parser(parser.add_subparsers())
    arguments = ["simulate", "--cluster", str(tmp_path / "cluster.json"), str(tmp_path / "job.yaml"), *more]
    return simulate.run(parser.parse_args(arguments))


def cluster(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "items": list(nodes)}


def away_from(selector: dict[str, Any], **more: Any) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector, **more}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def with_spec(body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body["spec"]["template"]["spec"] |= spec
    return body


WORKER: dict[str, Any] = {"limits": {"nvidia.com/gpu": 8}}


def template(resources: dict[str, Any], **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "resources": resources}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}] if resources is WORKER else []
    spec = {"containers": [container], "tolerations": tolerations}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def replicated(name: str, replicas: int, count: int, body: dict[str, Any]) -> dict[str, Any]:
    spec = {"parallelism": count, "completions": count, "template": body}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def owner(kind: str, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "t", "annotations": annotations or {}}, "spec": spec}


def group(spec: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return owner("LeaderWorkerSet", {"leaderWorkerTemplate": spec}, annotations)
