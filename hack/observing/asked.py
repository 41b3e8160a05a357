"""What programs asked of the API server, by its own count."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from webhook.kube.client import Api

_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_SHOWN: Final = re.compile(r"^apiserver_watch_events_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def asked(api: Api) -> Counter[str]:
    """Requests so far by verb and resource ("POST pods/binding"), and events of watches by resource."""
    text = api.request("GET", "/metrics", timeout_seconds=60).decode()
    found: Counter[str] = Counter()
    for labels, count in _REQUESTS.findall(text):
        labels_of_sample = dict(_LABEL.findall(labels))
        resource = "/".join(
            filter(None, (labels_of_sample.get("resource"), labels_of_sample.get("subresource")))
        )
        found[f"{labels_of_sample['verb']} {resource}"] += int(float(count))
    for labels, count in _SHOWN.findall(text):
        labels_of_sample = dict(_LABEL.findall(labels))
        found[f"shown to watches: {labels_of_sample.get('resource') or labels_of_sample.get('kind')}"] += int(
            float(count)
        )
    return found


def shares(before: Mapping[str, int], after: Mapping[str, int], pods: int) -> dict[str, float]:
    """Of what is asked of each pod or nearly, how often, the most first."""
    often = {name: (count - before.get(name, 0)) / pods for name, count in after.items()}
    return dict(sorted(((x, y) for x, y in often.items() if y >= 0.05), key=lambda pair: -pair[1]))
