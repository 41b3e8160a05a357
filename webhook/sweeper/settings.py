"""What an operator can set of the sweeper."""

from dataclasses import dataclass, field

from webhook.placement import Options, Topology


@dataclass(frozen=True)
class Settings:
    """All choices, with defaults that need no thought.

    settle_seconds: a gang whose size nobody tells is complete after this long without a new pod.
    patience_seconds: a gang whose size is told, but whose pods do not all come, is placed as it is after
    this long without a new pod (controllers that make pods only after others run would wait for ever).
    interval_seconds: a pass happens at least this often, whatever is heard. ignored_namespaces: left alone.
    """

    settle_seconds: float = 5.0
    patience_seconds: float = 60.0
    interval_seconds: float = 30.0
    ignored_namespaces: frozenset[str] = frozenset()
    topology: Topology = field(default_factory=Topology)
    options: Options = field(default_factory=Options)
