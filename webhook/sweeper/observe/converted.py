"""Results of a conversion that are kept as long as the API server's object behind them is the same one.

So a pass over a cluster in which little has changed converts little.
"""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from webhook.kube.objects import Metadata


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> Metadata: ...


A = TypeVar("A", bound=_HasMetadata)
B = TypeVar("B")


Texts = Mapping[str, str]


class Converted(Generic[A, B]):
    """Results of a conversion, by uid, for as long as the object is the very same.

    A conversion may read other annotations than the object's own; its result counts while they are equal.

    A result may be completed by something that holds for all of them; when that changes, it is completed
    anew, but not converted anew.
    """

    def __init__(self, convert_one: Callable[[A, Texts | None], B]) -> None:
        """convert_one must depend on nothing but its arguments."""
        self._convert = convert_one
        self._complete: Callable[[A, B], B] | None = None
        self._by: object = None
        self._known: dict[str, tuple[A, Texts | None, B, object, B]] = {}
        self._used: dict[str, tuple[A, Texts | None, B, object, B]] = {}

    def complete_by(self, by: object, complete: Callable[[A, B], B] | None) -> None:
        """How results are completed from now on (None: they are complete); `by` is its identity."""
        self._by, self._complete = by, complete

    def forget(self) -> None:
        """What the conversion goes by has changed."""
        self._known, self._used = {}, {}

    def get(self, item: A, annotations: Texts | None = None) -> B:
        """The conversion of an object; annotations: read instead of its own."""
        uid = item.metadata.uid
        known = self._used.get(uid) or self._known.get(uid)
        is_same = known is not None and known[0] is item and known[1] == annotations
        if known is None or not is_same or known[3] is not self._by:
            plain = known[2] if known is not None and is_same else self._convert(item, annotations)
            complete = self._complete(item, plain) if self._complete else plain
            known = (item, annotations, plain, self._by, complete)
        self._used[uid] = known
        return known[4]

    def end_round(self, count: int = 0) -> None:
        """Forget what was not asked for since the last round.

        count: of the objects that there are, of which only some are asked for in a round; then they are
        forgotten once most of what is known is of others.
        """
        if len(self._known) <= 2 * count:
            self._known |= self._used
            self._used = {}
        else:
            self._known, self._used = self._used, {}
