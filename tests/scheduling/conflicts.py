"""Pods whose anti-affinity meets other pods."""

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from tests.scheduling.neighbours import HOSTNAME, REQUIRED, Body
from tests.sweeper.pods import pod_json


def body(
    name: str = "p",
    labels: Mapping[str, str] | None = None,
    anti: Iterable[Body] = (),
    ports: Iterable[Body] = (),
    namespace: str = "ns",
) -> Body:
    metadata = {"namespace": namespace, "labels": dict(labels or {}), "uid": f"{namespace}-{name}"}
    made = pod_json(name, metadata=metadata)
    if anti := list(anti):
        required = {REQUIRED: anti}
        made["spec"]["affinity"] = {"podAntiAffinity": required}
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 1, **port} for port in ports]
    return made


def away_from(*values: str, **more: Any) -> Body:
    """A term against pods whose label app has one of these values."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(values)}]}
    return {"topologyKey": HOSTNAME, "labelSelector": selector, **more}


NAMESPACES = {"ns": {"team": "a"}, "other": {"team": "b"}}


LABELS = st.fixed_dictionaries({}, optional={"app": st.sampled_from("xyz"), "tier": st.sampled_from("ab")})


EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(("app", "tier")),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from("xyab"), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(("app", "tier")),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)


SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)}
)


BY_NAME = st.sampled_from(
    [{"matchLabels": {"kubernetes.io/metadata.name": name}} for name in NAMESPACES] + [{}]
)


TERMS = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from((HOSTNAME, HOSTNAME, HOSTNAME, "zone"))},
    optional={
        "labelSelector": SELECTORS,
        "namespaces": st.lists(st.sampled_from(sorted(NAMESPACES)), max_size=2, unique=True),
        "namespaceSelector": BY_NAME,
    },
)


PORTS = st.fixed_dictionaries(
    {"hostPort": st.sampled_from((0, 80, 81))},
    optional={
        "hostIP": st.sampled_from(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
        "protocol": st.sampled_from(("TCP", "UDP")),
    },
)


PODS = st.builds(
    body,
    labels=LABELS,
    anti=st.lists(TERMS, max_size=2),
    ports=st.lists(PORTS, max_size=2),
    namespace=st.sampled_from(sorted(NAMESPACES)),
)
