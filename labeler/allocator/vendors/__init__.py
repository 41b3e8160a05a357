"""What differs between vendors of GPUs: one module each, with a function ``create(places) -> Vendor``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from labeler.allocator.values import Edits, LocalCard, LocalContainer

KNOWN: Final = ("intel", "nvidia")


@dataclass(frozen=True)
class Places:
    """Where the node's folders are seen from here; a container may see them elsewhere.

    ignore_integrated: leave out Intel GPUs that are part of the processor, as the labeler's option does.
    """

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    ignore_integrated: bool = False


class Vendor(Protocol):
    """One vendor's cards."""

    resources: tuple[str, ...]
    """The resources that hand out cards."""
    monitoring: Mapping[str, str]
    """Resources that show all cards of another one, with that one."""
    has_plans: bool
    """Whether annotations name cards of this vendor."""
    describes_cdi: bool
    """Whether the cards are described for CDI here; else somebody else's description is referred to."""

    def cards(self) -> tuple[LocalCard, ...]:
        """The cards as they are now. Raises OSError."""

    def competitors(self, resource: str) -> tuple[str, ...]:
        """Names of sockets by which another plugin of this resource is known."""

    def default(
        self,
        cards: Iterable[LocalCard],
        available: Iterable[str],
        must_include: Iterable[str],
        size: int,
        taken: Mapping[str, int],
    ) -> list[str]:
        """Devices for a pod without a plan. taken: how many of each card are promised to others."""

    def edits(
        self,
        given: Mapping[LocalCard, tuple[int, ...]],
        visible: Iterable[LocalCard],
        container: LocalContainer | None,
        use_cdi: bool = False,
    ) -> Edits:
        """What a container is started with that gets these cards (with their tiles; () for all of them).

        visible: further cards that it sees. use_cdi: name the cards to the container runtime, instead of
        their files. Raises Refusal.
        """


def create_vendor(name: str, places: Places) -> Vendor:
    """The vendor of that name."""
    return cast(Vendor, import_module(f"{__name__}.{name}").create(places))
