"""Asks the API server what another user may do (SubjectAccessReview)."""

from collections.abc import Mapping, Sequence

from webhook.kube.client import Api


def may(api: Api, user: str, groups: Sequence[str], attributes: Mapping[str, str]) -> bool:
    """Whether a user with these groups is allowed to. attributes: the resourceAttributes of the review.

    Raises ApiError.
    """
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(groups), "resourceAttributes": dict(attributes)},
    }
    answer = api.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
    return bool((answer.get("status") or {}).get("allowed"))
