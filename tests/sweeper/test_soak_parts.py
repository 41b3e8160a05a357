"""A soak that has seen only a part of what happened does not find all well."""

import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from hack.local.cluster import Cluster
from hack.soaks.audit import audit_lines
from hack.soaks.ledger import Ledger
from hack.soaks.reader import PODS, LedgerReader
from hack.soaks.trouble import Trouble
from webhook.kube.client import Api


class Strange:
    """An API server whose pods are nothing that can be read, and a cluster that has it."""

    def json(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}

    def api(self) -> "Strange":
        return self


def test_a_reader_that_fails_is_a_fault() -> None:
    reader = LedgerReader(cast(Api, Strange()), PODS, Ledger(frozenset({"a"})))
    with pytest.raises(KeyError):
        reader.run()
    (fault,) = reader.faults
    assert fault.startswith(f"of {PODS} nothing more was judged: KeyError(")


def test_what_the_audit_log_has_put_aside_is_read_as_well(tmp_path: Path) -> None:
    parts = ("audit-2026-01-02T00-00-00.000", "audit-2026-01-01T00-00-00.000", "audit", "kwok")
    for name in parts:
        (tmp_path / f"{name}.log").write_text(f"{name} 1\n{name} 2\n")
    read = [line.split()[0] for line in audit_lines(tmp_path / "audit.log")]
    assert read == [name for name in (parts[1], parts[0], parts[2]) for _ in range(2)]


def test_a_node_that_is_made_good_in_the_end_is_not_sound_at_once() -> None:
    trouble = Trouble(cast(Cluster, Strange()), {}, [], random.Random(1), Counter())
    trouble.amiss["n"] = (0.0, lambda: None)
    trouble.make_good()
    assert not trouble.is_sound("n")
    assert trouble.is_sound("m")
