"""The extras of the package that an installation may lack, and the sentence that says so."""

from functools import lru_cache
from importlib.util import find_spec
from typing import Final

LACKS_CEL: Final = (
    "CEL selectors of devices cannot be evaluated, as cel-expr-python is not installed: "
    "run the image topogate-dra, or install topogate[dra]"
)


@lru_cache(maxsize=1)
def has_cel() -> bool:
    """Whether selectors of devices can be evaluated: the extra `dra` brings what that needs."""
    return find_spec("cel_expr_python") is not None
