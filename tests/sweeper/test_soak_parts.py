"""A soak that has seen only a part of what happened does not find all well."""

from typing import Any, cast

import pytest

from hack.soaks.ledger import Ledger
from hack.soaks.reader import PODS, LedgerReader
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
