"""Resources that extensions add: what they see and give, and that claims wait for one that fails."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from tests.devices.bodies import claim, claim_spec, collections, exactly, gpus, nodes, pod
from tests.extensions.made import extension
from tests.sweeper.clock import Clock
from webhook.configuration.settings import Settings
from webhook.extensions.device_claims import COLLECTIONS, DEVICE_CLAIMS
from webhook.extensions.known import all_extensions, resource_extensions
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.placement import PodClass
from webhook.sweeper.context import Pass
from webhook.sweeper.extension import Extension, HookInput, ResourcesAdded, Switch
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.view import View

CLAIM, PLAIN = pod("claims", "c"), pod("plain")
GPUS = collections(gpus("n", 8), claims=(claim("c", claim_spec(exactly(2))),))
DEVICES = "devices of gpu"
WAITS = "what its claims on devices ask for is not known in this pass"


class Objects:
    """The live copies, as far as a pass's begin looks at them."""

    def __init__(self, known: Mapping[Any, Any]) -> None:
        self.known = known
        self.freed = 0

    def served(self) -> dict[str, str]:
        return {}

    def namespace_labels(self) -> None:
        return None

    def begin(self) -> None:
        pass

    def on_freed(self) -> None:
        self.freed += 1

    def read_collections(self, asked: Any) -> dict[Any, Any]:
        return {each: self.known[each] for each in asked if each in self.known}


class Case:
    """Passes over one node with eight devices, and two pods that wait, one of them with a claim on two."""

    def __init__(self, *extensions: Extension) -> None:
        self.objects = Objects(GPUS)
        self.is_on = True
        switches = tuple(Switch(lambda _: self.is_on, lambda found=each: found) for each in extensions)  # type: ignore[misc]
        self.hooks = ExtensionHooks(
            Pass(
                cast(Api, None), cast(ClusterCache, self.objects), Settings(), clock=Clock(),
                extensions=switches,
            )
        )  # fmt: skip

    def view(self) -> View:
        return self.hooks.begin(View([CLAIM, PLAIN], [], nodes("n"), {}), self.hooks.memories)


def problems(view: View) -> tuple[str, str]:
    """Why each of the two pods cannot be placed."""
    return view.class_of(CLAIM).problem, view.class_of(PLAIN).problem


def of_devices(found: PodClass) -> dict[str, int]:
    return {name: amount for name, amount in found.requests if name.startswith("devices of")}


def failing(when: Callable[[], bool]) -> Extension:
    """The extension for claims, which has a defect while `when` says so."""

    def add(given: HookInput, memory: Any) -> tuple[ResourcesAdded, Any]:
        if when():
            raise ZeroDivisionError
        return DEVICE_CLAIMS.add_resources(given, memory)

    return extension("device_claims", add_resources=add)


def test_a_pod_with_claims_asks_for_the_devices_that_they_name() -> None:
    view = Case(DEVICE_CLAIMS).view()
    assert problems(view) == ("", "")
    assert of_devices(view.class_of(CLAIM)) == {DEVICES: 2}
    assert of_devices(view.class_of(PLAIN)) == {}


def test_a_pass_looks_at_no_bound_pod_for_claims() -> None:
    """They are most of a cluster's pods, and an idle pass is to cost next to nothing."""

    class Others(list[Pod]):
        def __iter__(self) -> Iterator[Pod]:
            raise AssertionError("all pods are looked at")

    case = Case(DEVICE_CLAIMS)
    bound = pod("bound", "d", node="n")
    index = View([CLAIM, PLAIN], [bound], nodes("n"), {}).index
    given = View([CLAIM, PLAIN], Others([bound]), nodes("n"), {}, pods=index)
    view = case.hooks.begin(given, {})
    assert problems(view) == ("", "")


@pytest.mark.promise("R141")
def test_after_a_defect_pods_with_claims_wait_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    of_claims, of_plain = problems(Case(failing(lambda: True)).view())
    assert of_claims.startswith(WAITS)
    assert of_plain == ""
    assert "extension_failed name=device_claims" in caplog.text


def test_a_defect_is_over_with_the_next_pass_without_one_and_its_memory_is_gone() -> None:
    failed = [False]
    case = Case(failing(lambda: failed[0]))
    case.view()
    before = case.hooks.memories["device_claims"]
    failed[0] = True
    case.view()
    assert not case.hooks.memories
    failed[0] = False
    assert problems(case.view()) == ("", "")
    assert case.hooks.memories["device_claims"].supply is not before.supply


def test_where_one_of_several_fails_pods_with_claims_wait() -> None:
    def broken(given: HookInput, memory: Any) -> tuple[ResourcesAdded, Any]:
        raise ZeroDivisionError

    of_claims, _ = problems(Case(DEVICE_CLAIMS, extension("broken", add_resources=broken)).view())
    assert of_claims.startswith(WAITS)


def test_where_claims_are_off_pods_with_some_wait_and_no_others() -> None:
    case = Case(DEVICE_CLAIMS)
    case.is_on = False
    of_claims, of_plain = problems(case.view())
    assert of_claims.startswith("its claims on devices are not read: the cluster does not serve")
    assert of_plain == ""


@pytest.mark.promise("R141")
@pytest.mark.parametrize("missing", COLLECTIONS, ids=lambda each: each.kind)
def test_what_cannot_be_read_lets_pods_with_claims_wait_and_is_named(missing: Any) -> None:
    case = Case(DEVICE_CLAIMS)
    case.objects.known = {each: there for each, there in GPUS.items() if each is not missing}
    of_claims, of_plain = problems(case.view())
    resource = missing.path.rpartition("/")[2]
    assert of_claims.endswith(f"the right to list and watch {resource} of resource.k8s.io")
    assert of_plain == ""


def test_gangs_are_asked_about_again_once_devices_are_known() -> None:
    case = Case(DEVICE_CLAIMS)
    case.objects.known = {}
    case.view()
    assert case.objects.freed == 0
    case.objects.known = GPUS
    for _ in range(3):
        case.view()
    assert case.objects.freed == 1


def test_an_extension_may_give_labels_to_nodes() -> None:
    def add(given: HookInput, memory: Any) -> tuple[ResourcesAdded, Any]:
        return ResourcesAdded({**given.view.nodes, **nodes("more")}), memory

    assert Case(extension("labels", add_resources=add)).view().nodes.keys() == {"n", "more"}


def test_a_pass_in_which_nobody_has_claims_sees_the_very_same_view() -> None:
    def add(given: HookInput, memory: Any) -> tuple[ResourcesAdded, Any]:
        return ResourcesAdded(given.view.nodes), memory

    case = Case(extension("nothing", add_resources=add))
    plain = View([PLAIN], [], nodes("n"), {})
    assert case.hooks.begin(plain, {}) is plain


def test_people_who_ask_are_given_what_every_extension_adds() -> None:
    adding = [each.name for each in all_extensions() if each.has("add_resources")]
    assert [each.name for each in resource_extensions()] == adding


SERVED = """
import sys
from types import SimpleNamespace
from webhook.extensions.known import SWITCHES
from webhook.sweeper.context import Pass
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.view import View
from webhook.configuration.settings import Settings

lazy = SimpleNamespace(begin=lambda: None)
served = {served}
cache = SimpleNamespace(
    served=lambda: served, owners=SimpleNamespace(all_of=lambda name: None), lazy=lazy,
    read_collections=lambda asked: dict(), take_failed=list, namespace_labels=lambda: None,
)
ExtensionHooks(Pass(None, cache, Settings(), extensions=SWITCHES)).begin(View([], [], {{}}, {{}}), {{}})
print(any(name.startswith("webhook.devices") for name in sys.modules))
"""


@pytest.mark.parametrize(
    ("served", "is_imported"), [({}, False), ({"deviceclasses.resource.k8s.io": "v1"}, True)]
)
def test_claims_are_imported_where_the_cluster_serves_them(served: dict[str, str], is_imported: bool) -> None:
    code = SERVED.format(served=served)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(is_imported)
