"""An index by labels of the pods that have a node. Pure.

A label is indexed on its first use, and all labels at once if many are used. So many terms of one namespace
cost one pass over its pods, even if each of them finds few pods.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Final

from webhook.kube import objects
from webhook.scheduling.antiaffinity import AntiAffinityTerm

AssignedPod = tuple[objects.Pod, str]
"""A pod and its node."""

_SINGLE_KEYS: Final = 4
"""The most labels of a namespace's pods that are indexed one by one; after that all are indexed."""

_Index = tuple[dict[tuple[str, str], list[AssignedPod]], int]
"""Pods by key and value, and the number of the namespace's pods that are indexed."""


class _IndexedPods:
    """Pods with their nodes; more can be added."""

    def __init__(self, assigned: Iterable[AssignedPod]) -> None:
        self.all = list(assigned)
        self._indexed = 0
        self._by_namespace: dict[str, list[AssignedPod]] = {}
        self._by_label: dict[str, _Index] = {}
        self._by_key: dict[str, dict[str, _Index]] = {}
        self._found: dict[str, tuple[list[AssignedPod], int]] = {}

    def found(self, term: AntiAffinityTerm) -> list[AssignedPod]:
        """The pods that a term selects; added pods come last."""
        found, done = self._found.get(term.name, ([], 0))
        if done < len(self.all) or not done:
            fresh = self.all[done:] if done else self._candidates(term)
            found += [
                each for each in fresh if term.repels(each[0].metadata.namespace, each[0].metadata.labels)
            ]
            self._found[term.name] = found, len(self.all)
        return found

    def _candidates(self, term: AntiAffinityTerm) -> list[AssignedPod]:
        for each in self.all[self._indexed :]:
            self._by_namespace.setdefault(each[0].metadata.namespace, []).append(each)
        self._indexed = len(self.all)
        namespaces = self._by_namespace if term.namespaces is None else term.namespaces
        named = [each for each in term.requirements if each.operator == "In"]
        found: list[AssignedPod] = []
        for namespace in namespaces:
            best = self._by_namespace.get(namespace, [])
            for wanted in named if best else ():
                labels = self._labelled(namespace, wanted.key)
                pods = [pod for value in wanted.values for pod in labels.get((wanted.key, value), ())]
                best = min(best, pods, key=len)
            found += best
        return found

    def _labelled(self, namespace: str, key: str) -> Mapping[tuple[str, str], list[AssignedPod]]:
        """The pods of a namespace by one label, or by all labels."""
        pods = self._by_namespace[namespace]
        single = self._by_key.setdefault(namespace, {})
        if namespace not in self._by_label and (key in single or len(single) < _SINGLE_KEYS):
            labels, done = single.get(key, ({}, 0))
            for each in pods[done:]:
                value = each[0].metadata.labels.get(key)
                if value is not None:
                    labels.setdefault((key, value), []).append(each)
            single[key] = labels, len(pods)
            return labels
        labels, done = self._by_label.get(namespace, ({}, 0))
        for each in pods[done:]:
            for pair in each[0].metadata.labels.items():
                labels.setdefault(pair, []).append(each)
        self._by_label[namespace] = labels, len(pods)
        return labels


class AssignedPods:
    """Pods with their nodes: an immutable value, from which values with more pods are made.

    Values that are derived from each other share an index of the pods of the latest one. If an earlier value
    is used again, it indexes its own pods.
    """

    def __init__(self, assigned: Iterable[AssignedPod]) -> None:
        self._indexed = _IndexedPods(assigned)
        self._count = len(self._indexed.all)

    @property
    def all(self) -> list[AssignedPod]:
        """The pods, in the order in which they were added."""
        return self._own().all

    def with_added(self, added: Iterable[AssignedPod]) -> "AssignedPods":
        """These pods and more, which come last."""
        made = copy(self)
        indexed = self._own()
        indexed.all.extend(added)
        made._count = len(indexed.all)
        return made

    def found(self, term: AntiAffinityTerm) -> list[AssignedPod]:
        """The pods that a term selects; added pods come last. It is valid until the next value is made."""
        return self._own().found(term)

    @property
    def order(self) -> object:
        """A token that stays the same as long as new pods are only appended."""
        return self._own()

    def _own(self) -> _IndexedPods:
        """An index of exactly these pods."""
        if len(self._indexed.all) > self._count:
            self._indexed = _IndexedPods(self._indexed.all[: self._count])
        return self._indexed
