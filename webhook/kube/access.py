"""Asks the API server what another user may do (SubjectAccessReview)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from webhook.kube.client import Api


@dataclass(frozen=True)
class UserInfo:
    """A user as the API server authenticated it: all that its authorizers may read. extra: values by key."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """From the status.user of a TokenReview."""
        extra = sorted((found.get("extra") or {}).items())
        return cls(
            str(found.get("username", "")),
            tuple(found.get("groups") or ()),
            str(found.get("uid") or ""),
            tuple((key, tuple(values or ())) for key, values in extra),
        )


def may(api: Api, who: UserInfo, attributes: Mapping[str, str]) -> bool:
    """Whether a user is allowed to. attributes: the resourceAttributes of the review. Raises ApiError."""
    spec = {
        "user": who.user,
        "groups": list(who.groups),
        "uid": who.uid,
        "extra": {key: list(values) for key, values in who.extra},
        "resourceAttributes": dict(attributes),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }
    answer = api.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
    return bool((answer.get("status") or {}).get("allowed"))
