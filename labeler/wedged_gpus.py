"""GPUs that their drivers (i915, xe, amdgpu) have given up: the kernel reports it once, and saves it nowhere.

https://docs.kernel.org/gpu/drm-uapi.html#device-wedging: the uevent has WEDGED with what helps ("rebind",
"bus-reset"); "none" is a card that was reset and works.
"""

import re
from typing import Final

_CARD: Final = re.compile(r"/([^/]+)/drm/card[0-9]+$")
_RECOVERED: Final = "none"


class WedgedGpus:
    """GPUs that the kernel reported, until they are bound again. Several threads may ask."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}

    def update(self, path: str, action: str, wedged: str | None) -> None:
        """Take note of an event. path: of the device below /sys; wedged: the event's WEDGED.

        Connectors below a card change with screens, and mean nothing for the card.
        """
        card = _CARD.search(path)
        if card is None:
            return
        address = card[1]
        if wedged is not None and wedged != _RECOVERED:
            self._problems[address] = f"its driver gave it up; to recover: {wedged}"
        elif action in ("add", "remove"):
            self._problems.pop(address, None)

    def problem(self, address: str) -> str:
        """Why the GPU at a PCI address cannot be used; "" for one that no driver gave up."""
        return self._problems.get(address, "")
