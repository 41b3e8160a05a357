"""The claims of one pod: the requests to allocate, and the nodes for allocated devices. Pure.

Source of the rules: kube-scheduler's plugin DynamicResources, PreFilter.
"""

from dataclasses import dataclass

from webhook.devices.claims import Asked, Claims, UnmodelledError
from webhook.devices.pools import terms
from webhook.devices.supply import Supply
from webhook.kube.devices import MOST_CONSUMERS, ResourceClaim
from webhook.kube.objects import Pod, PodClaim
from webhook.placement.eligibility import Term


@dataclass(frozen=True)
class PodClaims:
    """The claims of a pod. unallocated: in the pod's order. terms: the nodes for each allocated claim: one
    term must match.

    problem: why the pod cannot be placed now, "" if it can.
    """

    unallocated: Claims = ()
    terms: tuple[tuple[Term, ...], ...] = ()
    problem: str = ""


def claims_of(pod: Pod, supply: Supply, shared: frozenset[str] = frozenset()) -> PodClaims:  # noqa: C901
    """The claims of a pod. shared: names of claims that several pods wait for."""
    if supply.problem and pod.spec.resource_claims:
        return PodClaims(problem=supply.problem)
    unallocated: list[Asked] = []
    alternatives: list[tuple[Term, ...]] = []
    for each in pod.spec.resource_claims:
        try:
            claim = _claim(pod, each, supply)
            if isinstance(claim, Asked):
                unallocated.append(claim)
            elif claim is not None:
                name = _key(claim)
                what = f'its ResourceClaim "{claim.metadata.name}"'
                allocation = claim.status.allocation
                if allocation is None:
                    if name in shared:
                        raise UnmodelledError(
                            f"{what} is not allocated and shared by several pods, "
                            "which topogate does not model"
                        )
                    unallocated.append(_named(what, name, claim, supply))
                elif allocation.node_selector is not None:
                    alternatives.append(tuple(terms(allocation.node_selector)))
        except UnmodelledError as error:
            return PodClaims(problem=str(error))
    extended = supply.extended(pod)
    if isinstance(extended, Asked):
        unallocated.append(extended)
    elif extended is not None:
        alternatives.append(tuple(terms(extended)))
    return PodClaims(tuple(unallocated), tuple(alternatives))


def _named(what: str, key: str, claim: ResourceClaim, supply: Supply) -> Asked:
    try:
        return supply.asked(f"claim {key}", claim)
    except UnmodelledError as error:
        raise UnmodelledError(f"{what} {error}") from None


def _claim(pod: Pod, entry: PodClaim, supply: Supply) -> ResourceClaim | Asked | None:  # noqa: C901
    """The claim of an entry; for a pod that does not exist yet, its requests; None if no claim is needed."""
    namespace, template = pod.metadata.namespace, entry.resource_claim_template_name
    name = entry.resource_claim_name
    if template:
        made = next((each for each in pod.status.resource_claim_statuses if each.name == entry.name), None)
        if made is not None and not made.resource_claim_name:
            return None
        if made is None:
            source = supply.templates.get(f"{namespace}/{template}")
            if source is None:
                raise UnmodelledError(
                    f'there is no ResourceClaimTemplate "{template}" for its claim {entry.name}'
                )
            if pod.metadata.resource_version:
                raise UnmodelledError(f'the ResourceClaim of its template "{template}" is not created yet')
            try:
                return supply.asked(f"template {namespace}/{template}", source)
            except UnmodelledError as error:
                raise UnmodelledError(f'its ResourceClaimTemplate "{template}" {error}') from None
        name = made.resource_claim_name
    claim = supply.claims.get(f"{namespace}/{name}")
    what = f'ResourceClaim "{name}"'
    if claim is None:
        raise UnmodelledError(f"there is no {what} for its claim {entry.name}")
    owner = claim.metadata.controller
    if template and (owner is None or owner.uid != pod.metadata.uid):
        raise UnmodelledError(f"the {what} was not created for this pod")
    if claim.metadata.deletion_timestamp:
        raise UnmodelledError(f"the {what} is being deleted")
    users = claim.status.reserved_for
    if len(users) >= MOST_CONSUMERS and pod.metadata.uid not in {each.uid for each in users}:
        raise UnmodelledError(f"the {what} is reserved for {len(users)} pods already, which is the limit")
    return claim


def _key(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
