"""Gangs of Kubernetes' own PodGroups: the extension."""

from typing import Final

from webhook.extensions.native_gangs.adopt import GROUPS, complete_gangs
from webhook.extensions.native_gangs.left import LEFT, LeftMemory, after_pass
from webhook.sweeper.extension import Extension

NATIVE_GANGS: Final = Extension(
    "native_gangs",
    memory=LeftMemory(),
    owners=(GROUPS,),
    gauges=(LEFT,),
    complete_gangs=complete_gangs,
    after_pass=after_pass,
)
