"""Checks of the webhook's certificates: what the API server trusts, and what the webhook serves."""

import base64
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from webhook.inquiry.findings import SYSTEM, Finding, State, found
from webhook.kube.client import Api

CERTIFICATE_DAYS: Final = 7
CONFIGURATION: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate"
SECRET: Final = f"/api/v1/namespaces/{SYSTEM}/secrets/topogate-webhook-tls"
RENEW: Final = (
    f"kubectl logs deployment/certs -n {SYSTEM}; "
    "then topogate certs rotate --kubeconfig ~/.kube/config renews what is due."
)


def is_issued_by_others(api: Api) -> bool:
    """Whether cert-manager issues the certificates, and not our own program. Raises ApiError."""
    annotations = api.json("GET", CONFIGURATION)["metadata"].get("annotations") or {}
    return any(key.startswith("cert-manager.io/inject-") for key in annotations)


def bundle(api: Api, now: datetime) -> Iterator[Finding]:
    """The caBundle of the webhook configuration: present, readable, and not about to expire."""
    body = api.json("GET", CONFIGURATION)
    for hook in body["webhooks"]:
        bundle = hook["clientConfig"].get("caBundle", "")
        if not bundle:
            yield found(
                State.ILL,
                "the webhook configuration has no caBundle, so GPU pods are created ungated",
                f"See the log of deployment/certs in {SYSTEM}.",
            )
            continue
        yield _expiry(bundle, now)


def _expiry(bundle: str, now: datetime) -> Finding:
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError as error:
        return found(State.ILL, f"the caBundle cannot be read: {error}", RENEW)
    last = max(each.not_valid_after_utc for each in certificates)
    left = last - now
    if left < timedelta(0):
        return found(State.ILL, f"the caBundle expired at {last:%F %T}", RENEW)
    if left < timedelta(days=CERTIFICATE_DAYS):
        return found(State.ODD, f"the caBundle expires at {last:%F %T}", RENEW)
    return found(State.WELL, f"the caBundle is valid until {last:%F}")


def served(api: Api, now: datetime) -> Iterator[Finding]:
    """The certificate that the webhook serves: valid, for its address, and signed by a trusted authority."""
    hooks = api.json("GET", CONFIGURATION)["webhooks"]
    data = api.json("GET", SECRET).get("data") or {}
    try:
        trusted = [
            each
            for hook in hooks
            for each in x509.load_pem_x509_certificates(
                base64.b64decode(hook["clientConfig"].get("caBundle", ""))
            )
        ]
        leaf = x509.load_pem_x509_certificate(base64.b64decode(data.get("tls.crt", "")))
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        yield found(State.ILL, f"the certificates cannot be read: {error}", RENEW)
        return
    last, called = leaf.not_valid_after_utc, {_host(hook["clientConfig"]) for hook in hooks}
    there = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    if not any(_has_signed(each, leaf) for each in trusted):
        yield found(State.ILL, "the webhook serves a certificate that the caBundle has not signed", RENEW)
    elif not called <= there:
        wanted = ", ".join(sorted(called - there))
        yield found(State.ILL, f"the webhook's certificate is not for {wanted}", RENEW)
    elif last < now + timedelta(days=CERTIFICATE_DAYS):
        state, word = (State.ILL, "expired") if last < now else (State.ODD, "expires")
        yield found(state, f"the webhook's certificate {word} at {last:%F %T}", RENEW)
    else:
        yield found(State.WELL, f"the webhook's certificate is signed, and valid until {last:%F}")


def _host(client_config: Mapping[str, Any]) -> str:
    """The name by which the API server calls a webhook."""
    if "url" in client_config:
        return urlsplit(client_config["url"]).hostname or ""
    service = client_config.get("service") or {}
    return f"{service.get('name')}.{service.get('namespace')}.svc"


def _has_signed(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
