"""The gangs of pods, worked out once for each version of a pod.

In a large cluster that would be most of a pass in which nothing happens.
"""

from collections.abc import Sequence
from typing import Final

from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import GangKey, key_of

_SPARE: Final = 1000
"""Pods more than there are that may be remembered."""


class GangKeys:
    """Remembers what key_of said of a pod for as long as the object is the very same."""

    def __init__(self, gang_labels: Sequence[str] = ()) -> None:
        """gang_labels: see key_of."""
        self._gang_labels = gang_labels
        self._known: dict[str, tuple[Pod, GangKey]] = {}

    def of(self, pod: Pod) -> GangKey:
        """The gang that a pod belongs to."""
        known = self._known.get(pod.metadata.uid)
        if known is None or known[0] is not pod:
            known = self._known[pod.metadata.uid] = pod, key_of(pod, self._gang_labels)
        return known[1]

    def forget(self, count: int) -> None:
        """Begin anew if most of what is known is of pods that are gone; count: of those that are there."""
        if len(self._known) > 2 * count + _SPARE:
            self._known = {}
