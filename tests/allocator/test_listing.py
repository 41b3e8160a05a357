"""What the kubelet's pod-resources say, read plainly."""

from labeler.allocator.listing import PodResources
from labeler.allocator.wire import podresources_pb2 as wire
from tests.allocator.conftest import Kubelet

I915 = "gpu.intel.com/i915"


def entry(name: str, container: str, *devices: str) -> wire.PodResources:
    """A pod with one container, whose devices are listed one by one, as the kubelet does."""
    listed = [wire.ContainerDevices(resource_name=I915, device_ids=[each]) for each in devices]
    return wire.PodResources(
        name=name, namespace="ns", containers=[wire.ContainerResources(name=container, devices=listed)]
    )


def test_two_pods_of_one_name_are_read_as_one_that_has_the_devices_of_both(kubelet: Kubelet) -> None:
    """One that ends and the one that replaces it: the list has no uids."""
    pods = [entry("p", "c", "card0-1", "card1-0"), entry("p", "c", "card2-0"), entry("q", "c")]
    kubelet.pods = wire.ListPodResourcesResponse(pod_resources=pods)
    resources = PodResources(kubelet.folder / "pod-resources" / "kubelet.sock")
    assert resources.now() == {
        ("ns", "p"): {"c": {I915: ("card0-1", "card1-0", "card2-0")}},
        ("ns", "q"): {"c": {}},
    }
    resources.close()
