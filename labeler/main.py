"""``topogate-labeler``: labels the node that it runs on with its place in the topology and with its GPUs.

Quick to start and small: what only some configurations need is imported where they need it.
"""

import argparse
import logging
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from labeler import pod
from labeler.agent import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, Agent, Output
from labeler.api import NodeApi, NodeApiError
from labeler.config import Config, ConfigError, load_config
from labeler.contention import Contention
from labeler.contract import keys
from labeler.facts import SourceError
from labeler.labels import Wanted
from labeler.pod import UsageError
from labeler.publisher import LabelChange, NodePublisher
from labeler.sources import Context, OptionError, create_source, known_sources
from labeler.version import version

if TYPE_CHECKING:
    from labeler.health import Metric

SLOWEST_LOOK_SECONDS: Final = 60.0
"""Longer than every source's and the API server's time-outs together."""
ONESHOT_SECONDS: Final = 60.0
"""How long --oneshot keeps trying a server that does not answer."""

_SECONDS_OF: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

log: Final = logging.getLogger("labeler")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the labeler; returns 0, or 1 when labels are missing, or 2 for a mistake in the configuration."""
    options = parser().parse_args(arguments)
    pod.log_to_stderr("topogate-labeler", options)
    try:
        config = _config(options)
        contention = Contention()
        agent = _agent(options, config, contention)
    except (UsageError, ConfigError, OptionError) as error:
        print(f"topogate-labeler: {error}", file=sys.stderr)
        return 2
    if options.oneshot or options.dry_run:
        return _once(agent)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    interval = options.interval or config.interval_seconds
    if options.health_port is None:
        agent.run(interval)
        return 0
    from labeler.health import Health, serve

    longest_pause = SLOWEST_LOOK_SECONDS + 2 * max(interval, LAST_RETRY_SECONDS)
    health = Health(longest_pause, metrics=metrics_of(contention))
    try:
        serve(health, options.health_port)
    except OSError as error:
        print(f"topogate-labeler: --health-port {options.health_port}: {error}", file=sys.stderr)
        return 2
    agent.run(interval, health.heartbeat)
    return 0


def metrics_of(contention: Contention) -> "tuple[Metric, ...]":
    """What /metrics serves."""
    from labeler.health import Metric

    return (
        Metric(
            "topogate_build_info",
            "gauge",
            "1; its label is the program's version.",
            lambda: 1,
            f'{{version="{version()}"}}',
        ),
        Metric(
            "topogate_labeler_contested_labels",
            "gauge",
            "Labels of the Node that another writer keeps changing; its Events (LabelContested) name them.",
            lambda: contention.contested,
        ),
        Metric(
            "topogate_labeler_label_losses_total",
            "counter",
            "Times that another writer has changed a label of the labeler.",
            lambda: contention.total_losses,
        ),
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="topogate-labeler", description=__doc__)
    pod.add_arguments(made)
    add = made.add_argument
    add("--config", type=Path, metavar="FILE", help="configuration (YAML or JSON)")
    add("--source", choices=known_sources(), help="the only source, instead of a configuration")
    add("--facts", metavar="FILE", help="the facts file of --source file")
    add("--oneshot", action="store_true", help="label once and end")
    add("--dry-run", action="store_true", help="print the labels, write nothing, end")
    add(
        "--interval", type=_seconds, help="time between two looks: 90, 30s, 5m (default: the configuration's)"
    )
    add(
        "--extended-resources",
        action="store_true",
        help="also write millicores, memory and tiles of Intel cards to the Node's capacity",
    )
    add("--falldio-label", action="store_true", help=f"also write the GPU model as {keys.FALLDIO_GPU}")
    add(
        "--health-port", type=int, metavar="PORT", help="answer /healthz and /readyz there (default: nowhere)"
    )
    return made


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    seconds = float(match[1]) * _SECONDS_OF[match[2]] if match else 0.0
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no time of at least 1 s, such as 90, 30s or 5m")
    return seconds


def _config(options: argparse.Namespace) -> Config:
    if (options.config is None) == (options.source is None):
        raise UsageError("give either --config FILE or --source NAME")
    if options.facts and options.source != "file":
        raise UsageError("--facts belongs to --source file")
    if options.config:
        return load_config(options.config)
    path = {"path": options.facts} if options.facts else {}
    return Config(sources=((options.source, path),))


def _agent(options: argparse.Namespace, config: Config, contention: Contention) -> Agent:
    name = pod.node_name(options)
    if options.extended_resources and config.feature_file:
        raise UsageError(
            "--extended-resources: with a feature file, a NodeFeatureRule makes them (components/labeler-nfd)"
        )
    writes_node = not options.dry_run and config.feature_file is None
    api = _api(options) if writes_node or options.server else _api_of_pod(options)
    context = Context(name, _reader(api)) if api else Context(name)
    sources = {name: create_source(name, source_options, context) for name, source_options in config.sources}
    output = Printer() if options.dry_run else _output(config, api, options.extended_resources, contention)
    return Agent(sources, output, config.levels, config.pci_group_level, options.falldio_label)


def _output(config: Config, api: NodeApi | None, extended_resources: bool, contention: Contention) -> Output:
    if config.feature_file is not None:
        from labeler.feature_file import FeatureFile

        return FeatureFile(config.feature_file)
    assert api is not None, "without a feature file there is a server"
    publisher = NodePublisher(api, config.levels, contention)
    if extended_resources:
        from labeler.resources import ResourcePublisher

        return ResourcePublisher(api, publisher)
    return publisher


def _api(options: argparse.Namespace) -> NodeApi:
    server, ca_file = pod.server_of(options)
    return NodeApi(server, options.token_file, ca_file, options.node_name)


def _api_of_pod(options: argparse.Namespace) -> NodeApi | None:
    """The API server for sources that read the Node; None outside of a pod, or in one without credentials."""
    try:
        return _api(options)
    except UsageError:
        return None


def _reader(api: NodeApi) -> Callable[[], Mapping[str, Any]]:
    """The Node's metadata for sources, whose failures are those of a source."""

    def read() -> Mapping[str, Any]:
        try:
            return api.metadata()
        except NodeApiError as error:
            raise SourceError(str(error)) from error

    return read


def _once(agent: Agent) -> int:
    deadline = time.monotonic() + ONESHOT_SECONDS
    while True:
        try:
            agent.once()
        except (NodeApiError, OSError) as error:
            if getattr(error, "is_transient", False) and time.monotonic() < deadline:
                log.warning("not published, trying again: %s", error)
                time.sleep(FIRST_RETRY_SECONDS)
                continue
            log.error("not published: %s", error)
            return 1
        return 1 if agent.failed else 0


class Printer:
    """The output of --dry-run: the labels on standard output, one a line."""

    def publish(self, want: Wanted) -> LabelChange:
        """Print; changes nothing."""
        for key, value in sorted(want.labels.items()):
            print(f"{key}={value}")
        for key, value in sorted(want.annotations.items()):
            print(f"annotation {key}={value}")
        return LabelChange()


if __name__ == "__main__":
    sys.exit(main())
