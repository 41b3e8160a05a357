"""What somebody else may do, as the API server itself judges it."""

from collections.abc import Mapping, Sequence

from webhook.kube.client import Api


def may(api: Api, user: str, groups: Sequence[str], attributes: Mapping[str, str]) -> bool:
    """Whether a user of these groups may. attributes: resourceAttributes of a SubjectAccessReview.

    Raises ApiError.
    """
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(groups), "resourceAttributes": dict(attributes)},
    }
    answer = api.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
    return bool((answer.get("status") or {}).get("allowed"))
