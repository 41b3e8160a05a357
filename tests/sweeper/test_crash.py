"""Between whichever writes the sweeper dies, the next one reaches the same end.

The writes are not listed here: a run that nobody disturbs enumerates them. Two gangs: three pods with
NVIDIA GPUs for two nodes, and two pods that share the cards of one Intel node and are released in turn.
"""

import functools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import audited, create_namespace
from tests.sweeper.crash_cases import CASE_SECONDS, GANGS, GPUS, PARALLEL, Case
from tests.sweeper.mortal import Death, MortalApi, deaths_at, sweep_until


def run_case(cluster: Cluster, death: Death | None) -> tuple[Case, MortalApi, bool]:
    """One scenario: a sweeper that dies, and the next. Returns the first one's life, and whether it died."""
    case = Case(cluster, create_namespace(cluster))
    case.set_up()
    first = case.mortal("first", death)
    survived = sweep_until(first, case.settings, case.is_at_its_end, CASE_SECONDS)
    if not survived:
        next_one = case.mortal("next")
        assert sweep_until(next_one, case.settings, case.is_at_its_end, CASE_SECONDS)
    return case, first, not survived


def faults(case: Case, audit: list[dict[str, Any]]) -> list[str]:
    """What is not as it must be at the end, by the API server's own objects and its audit log."""
    pods = case.pods()
    writes = [entry for entry in audit if entry["objectRef"].get("namespace") == case.namespace]
    releases = [
        entry["objectRef"]["name"]
        for entry in sorted(writes, key=lambda entry: entry["requestReceivedTimestamp"])
        if entry["verb"] == "patch" and entry["responseStatus"]["code"] == 200
    ]
    released = Counter(releases)
    found = [
        f"{pod['metadata']['name']} was released {released[pod['metadata']['name']]} times"
        for pod in pods
        if released[pod["metadata"]["name"]] != 1
    ]
    found += [
        f"{entry['objectRef']['name']} was deleted" for entry in writes if entry["verb"].startswith("delete")
    ]
    order = {name: index for index, name in enumerate(releases)}
    pods.sort(key=lambda pod: order.get(pod["metadata"]["name"], -1))
    return found + _unequal_to_plan(case, pods) + _overbooked(pods)


def _unequal_to_plan(case: Case, pods: list[dict[str, Any]]) -> list[str]:
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    planned = [entry for placement in case.placements() for entry in placement["spec"]["pods"]]
    found = (
        [] if {entry["uid"] for entry in planned} == by_uid.keys() else ["the plans are not of these pods"]
    )
    for entry in planned:
        pod = by_uid.get(entry["uid"], {"spec": {}, "metadata": {}})
        if pod["spec"].get("nodeName") != entry["node"]:
            found.append(f"{entry['name']} is on {pod['spec'].get('nodeName')}, planned on {entry['node']}")
        annotations = pod["metadata"].get("annotations", {})
        if not _has_its_cards(annotations, entry.get("annotations", {})):
            found.append(f"{entry['name']} has other cards than planned: {annotations}")
        if pod["spec"].get("schedulingGates"):
            found.append(f"{entry['name']} is still gated")
    return found


def _has_its_cards(annotations: dict[str, str], planned: dict[str, str]) -> bool:
    """Those of the plan. A pod that waited in the release queue has a later time, that of its release."""
    stamp, others = keys.GAS_TIMESTAMP_ANNOTATION, planned.copy()
    planned_at = others.pop(stamp, "")
    return others.items() <= annotations.items() and annotations.get(stamp, "") >= planned_at


def _overbooked(pods: list[dict[str, Any]]) -> list[str]:
    """Of pods in the order of their release."""
    gpus: Counter[str] = Counter()
    cards: dict[tuple[str, str], Fraction] = {}
    stamps: dict[str, list[str]] = {}
    for pod in pods:
        node, annotations = pod["spec"].get("nodeName", ""), pod["metadata"].get("annotations", {})
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        gpus[node] += int(limits.get(GPUS, 0))
        if keys.I915 in limits:
            card = annotations.get(keys.GAS_CARDS_ANNOTATION, "none")
            used = cards.get((node, card), Fraction(0))
            cards[node, card] = used + Fraction(int(limits[keys.MILLICORES]), 1000)
            stamps.setdefault(node, []).append(annotations.get(keys.GAS_TIMESTAMP_ANNOTATION, ""))
    found = [f"{node} has {count} GPUs taken of 8" for node, count in gpus.items() if count > 8]
    found += [
        f"{card} of {node} is taken {share} times" for (node, card), share in cards.items() if share > 1
    ]
    found += [
        f"the pods of {node} were released with gas-ts {values}"
        for node, values in stamps.items()
        if values != sorted(set(values)) or {len(value) for value in values} != {19}
    ]
    return found


def _audit(cluster: Cluster, agents: set[str]) -> list[dict[str, Any]]:
    """The sweepers' writes to pods."""
    return [
        entry
        for entry in audited(cluster)
        if entry.get("userAgent") in agents
        and entry["objectRef"]["resource"] == "pods"
        and "subresource" not in entry["objectRef"]
    ]


@pytest.mark.promise("R6", "O183", "I1", "I70")
def test_whichever_write_the_sweeper_dies_at_the_next_one_reaches_the_same_end(
    definitions: Cluster,
) -> None:
    undisturbed, life, _ = run_case(definitions, None)
    writes = list(dict.fromkeys(life.writes))
    # A plan is a PATCH only where a Placement reported before that the gang waits, which not every life sees.
    durable = [write for write in writes if write.startswith(("POST placement", "PATCH pod"))]
    assert len([write for write in durable if write.startswith("POST placement")]) == len(GANGS)
    assert len([write for write in durable if write.startswith("PATCH pod")]) == 5

    deaths = deaths_at(writes)
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(functools.partial(run_case, definitions), deaths))

    cases = [undisturbed, *(case for case, _, _ in results)]
    agents = {case.agent(life) for case in cases for life in ("first", "next")}
    audit = _audit(definitions, agents)
    wrong = {
        f"died {death}": found
        for case, death in zip(cases, [None, *deaths], strict=True)
        if (found := faults(case, audit))
    }
    for case in cases:
        case.tear_down()
    assert wrong == {}
    # Progress and waiting are written when a pass finds any, so a life may lack such a write, no other.
    missed = [death for death, (_, _, died) in zip(deaths, results, strict=True) if not died]
    assert [str(death) for death in missed if death.write in durable] == []
