"""What follows from the configuration in the manifests, for the chart to follow its value `config`.

Each text that `topogate config render` derives from the configuration becomes a template that derives the
same. Part of `hack/chart`.
"""

import re
from typing import Any, Final

from hack.releases.template_variants import BelowKey, Value
from webhook.policy import rendering
from webhook.policy.name_conditions import list_of
from webhook.policy.values import Policy

_RENDERED: Final = ("topogate", "topogate-tiers", "topogate-gate-required", "topogate-gate")
"""The objects that `topogate config render` makes; in others only the prefix of the gate follows."""
_PREFIX: Final = '(include "topogate.gatePrefix" .)'


class Conditions:
    """The texts that follow from one configuration, with the templates that make them."""

    def __init__(self, policy: Policy) -> None:
        self._prefix = {policy.gate_prefix: _PREFIX}
        self._texts = {
            rendering.asks_for_gpu(policy): '(include "topogate.asksForGpu" (list . ""))',
            rendering.asks_for_gpu(policy, rendering.IS_INTEL): (
                f'(include "topogate.asksForGpu" (list . " || {rendering.IS_INTEL}"))'
            ),
            list_of(["", *policy.scheduler_names]): '(include "topogate.schedulers" .)',
            rendering.ADOPTED: '(include "topogate.adopted" .)',
            policy.gate_prefix: _PREFIX,
        }
        self._excluded = sorted(policy.excluded_namespaces)

    def included(self, each: dict[str, Any]) -> Any:
        """An object of the manifests with templates for what follows from the configuration."""
        is_rendered = each["metadata"]["name"] in _RENDERED and each["apiVersion"] == rendering.API_VERSION
        made = self._value(each, self._texts if is_rendered else self._prefix)
        if is_rendered and each["metadata"]["name"] == "topogate-tiers" and "variables" in made["spec"]:
            made["spec"]["matchConditions"] = BelowKey('include "topogate.maximumConditions" .')
            made["spec"]["variables"][0]["expression"] = Value('include "topogate.maximum" . | quote')
        return made

    def _value(self, value: Any, texts: dict[str, str]) -> Any:
        if isinstance(value, dict):
            return {key: self._value(each, texts) for key, each in value.items()}
        if isinstance(value, list) and value == self._excluded:
            return BelowKey('include "topogate.excluded" .')
        if isinstance(value, list):
            return [self._value(each, texts) for each in value]
        if isinstance(value, str):
            return _text(value, texts)
        return value


def _text(text: str, texts: dict[str, str]) -> str | Value:
    """A text, or the template of one that contains some of these texts."""
    pieces = re.split(f"({'|'.join(map(re.escape, texts))})", text)
    if len(pieces) == 1:
        return text
    words = [texts.get(piece) or f"`{piece}`" for piece in pieces if piece]
    return Value(f"print {' '.join(words)} | quote")
