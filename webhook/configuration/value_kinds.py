"""The types of a configuration's values, with what JSON Schema says of each."""

import re
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from labeler.contract import keys as labels
from webhook.durations import DURATION
from webhook.policy.values import LONGEST_MODEL_NAME
from webhook.workloads import marks
from webhook.workloads.owners import NAME as OWNER_NAME

Schema: TypeAlias = dict[str, Any]
"""JSON Schema, draft 7, which Helm and editors read."""


def _text(title: str, pattern: str, unless: str = "") -> Meta:
    """Texts that a pattern matches as a whole. title: such a text in words; unless: a pattern of others.

    Patterns are for Python and for Helm's engine, which knows no look-ahead.
    """
    refused = {"not": {"pattern": unless}} if unless else {}
    return Meta(extra_json_schema={"title": title, "pattern": f"^({pattern})$"} | refused)


LETTER_OR_DIGIT: Final = r"[\p{L}\p{N}]"
"""As JSON Schema has it; Python writes it as [^\\W_]."""
_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONG: Final = "[^/]{254}"
_QUALIFIED: Final = f"({_DNS}/)?{_NAME}"
_GATE_PREFIX: Final = f"({_DNS}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,50}}"
_ATTRIBUTE: Final = f"{labels.DEVICE_ATTRIBUTE}[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*"
_NAMESPACE: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_GLOB: Final = r"[-A-Za-z0-9_.*?\[\]!]+"
_ACCOUNT: Final = rf"[-a-z0-9*?\[\]!]{{1,100}}|.+={_GLOB}"
_READ_ALREADY: Final = f"topogate[.]io/|({'|'.join(map(re.escape, sorted(marks.ALL)))})$"
_MODEL: Final = rf"[\s\S]*{LETTER_OR_DIGIT}[\s\S]*"
_MODEL_TITLE: Final = (
    f"a name of a GPU model (at most {LONGEST_MODEL_NAME} characters, some letters or digits)"
)
_CLASS_TITLE: Final = "a name of a PriorityClass; those of system- are for the cluster's own pods"
_LEVEL_TITLE: Final = "a label key, or an attribute of devices as device:gpu.nvidia.com/cliqueID"

LabelKey = Annotated[str, _text("a label key", _QUALIFIED, f"^{_LONG}")]
LabelValue = Annotated[str, _text("a label value (at most 63 of A-Z a-z 0-9 - _ .)", f"({_NAME})?")]
LevelName = Annotated[str, _text("a name without comma and colon, which pods name levels by", "[^,:]+")]
LevelKey = Annotated[str, _text(_LEVEL_TITLE, f"{_QUALIFIED}|{_ATTRIBUTE}", f"^{_LONG}")]
GangLabel = Annotated[
    str, _text("a label key without another meaning", _QUALIFIED, f"^({_LONG}|{_READ_ALREADY})")
]
GatePrefix = Annotated[str, _text("a prefix of a gate's name", _GATE_PREFIX, f"^{_LONG}")]
ResourcePattern = Annotated[str, _text("a resource name or pattern", f"{_GLOB}/{_GLOB}")]
ClassPattern = Annotated[str, _text("a DeviceClass name or pattern", r"[-a-z0-9.*?\[\]!]+")]
SchedulerName = Annotated[str, _text("a scheduler's name", _DNS, f"^{_LONG}")]
NamespaceName = Annotated[str, _text("a namespace name", _NAMESPACE)]
RulesName = Annotated[str, _text('a namespace name, or "*" for all others', rf"\*|{_NAMESPACE}")]
TierName = Annotated[str, _text("a tier name", _NAME)]
ClassName = Annotated[str, _text(_CLASS_TITLE, _DNS, f"^(system-|{_LONG})")]
ModelName = Annotated[str, _text(_MODEL_TITLE, _MODEL, rf"^[\s\S]{{{LONGEST_MODEL_NAME + 1}}}")]
AnyName = Annotated[str, _text("a name", r"[\s\S]+")]
Owner = Annotated[str, _text("a kind of owner, Kind.group, as Workflow.argoproj.io", OWNER_NAME.pattern)]
ProvisioningClass = Annotated[str, _text('a ProvisioningRequest class, or ""', f"({_DNS})?", f"^{_LONG}")]
ShortText = Annotated[str, _text("a text of at most 255 characters", r"[\s\S]{0,255}")]
Account = Annotated[str, _text("a namespace name, a pattern of such, or accountLabel=value", _ACCOUNT)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
UpToThousand = Annotated[int, Meta(ge=0, le=1000)]
Weight = Annotated[float, Meta(ge=0.001, le=1000)]
UNIQUE: Final = Meta(extra_json_schema={"uniqueItems": True})
SOME: Final = Meta(extra_json_schema={"minItems": 1, "minProperties": 1})
ONE: Final = Meta(extra_json_schema={"minProperties": 1, "maxProperties": 1})

# --- durations ----------------------------------------------------------------------------------------

_TITLE: Final = "a duration, as 30s, 5m or 1h30m"
Duration = Annotated[str, _text(_TITLE, DURATION, "^$")]
PositiveDuration = Annotated[str, _text(f"{_TITLE}, above 0s", DURATION, "^[0.hms]*$")]
