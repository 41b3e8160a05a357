"""The configuration of the fair order, whose weights and costs name accounts and GPU models."""

from dataclasses import replace

from webhook.configuration.catalogue import model_finder
from webhook.configuration.document import DocumentReader, shown
from webhook.policy.fair import FairOrder
from webhook.policy.values import GpuModel


def resolved_order(order: FairOrder, models: tuple[GpuModel, ...], reader: DocumentReader) -> FairOrder:
    """The order with the catalogue's names of models; a name that fits nothing is a fault."""
    for key in order.weights:
        _check_account(key, order.account_label, reader)
    find, known = model_finder(models), [model.name for model in models]
    costs: dict[str, float] = {}
    for name, cost in order.model_costs.items():
        model = reader.one_of(find(name) or name, "fairOrder.modelCosts", known, "GPU model")
        if model in costs:
            reader.fault("fairOrder.modelCosts", f"{shown(name)} is the same model as another entry")
        costs[model] = cost
    return replace(order, model_costs=costs)


def _check_account(key: str, label: str, reader: DocumentReader) -> None:
    of_label, equals, _ = key.rpartition("=")
    if equals and not label:
        reader.fault("fairOrder.weights", f"{shown(key)} names a label, but there is no accountLabel")
    elif equals and of_label != label:
        fault = f"{shown(key)} names another label than accountLabel, which is {label}"
        reader.fault("fairOrder.weights", fault)
