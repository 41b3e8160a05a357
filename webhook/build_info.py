"""The series that says which version a program is."""

from prometheus_client import CollectorRegistry, Gauge

from webhook.version import version


def register_build_info(registry: CollectorRegistry) -> None:
    """Add topogate_build_info to the metrics of a program."""
    gauge = Gauge(
        "topogate_build_info", "1; its label is the program's version.", ["version"], registry=registry
    )
    gauge.labels(version()).set(1)
