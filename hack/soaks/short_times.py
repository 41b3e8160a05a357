"""Sweepers with short times: what takes patience in life happens within the minutes of a soak.

`python -m hack.soaks.short_times ARGUMENTS` is the sweeper with the settings of the environment's
SOAK_SETTINGS (JSON, by their names in Settings) over those of its configuration, which has no keys for some.
"""

import json
import os
from dataclasses import replace
from typing import Any, Final

from webhook.configuration.settings import Settings
from webhook.configuration.store import ConfigurationStore
from webhook.sweeper.main import main

SETTINGS: Final = "SOAK_SETTINGS"


def shorten_times() -> None:
    """Make every ConfigurationStore of this process answer with the settings of the environment."""
    changes: dict[str, Any] = json.loads(os.environ.get(SETTINGS, "{}"))

    def settings(store: ConfigurationStore) -> Settings:
        return with_changes(store.configuration.settings, changes)

    setattr(ConfigurationStore, "settings", property(settings))  # noqa: B010 - a property of the class


def with_changes(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Settings with others over them; those of a mapping are of the section of that name."""
    made: dict[str, Any] = {}
    for name, value in changes.items():
        section: Any = getattr(settings, name)
        made[name] = replace(section, **value) if isinstance(value, dict) else value
    return replace(settings, **made)


if __name__ == "__main__":
    shorten_times()
    raise SystemExit(main())
