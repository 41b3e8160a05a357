"""Certificates: what is issued, the order in which it is replaced, and a rotation under fire."""

import argparse
import base64
import contextlib
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission.harness import (
    HOSTS,
    MANIFESTS,
    WEBHOOKS,
    Webhook,
    create,
    delete_pods,
    gpu_pod,
)
from tests.support import create_namespace
from webhook.admission import rotation
from webhook.admission.certificates import Observed, Pair, Waits, issue, join, next_step, split
from webhook.admission.rotation import Rotation
from webhook.cli import certs
from webhook.kube.client import Api, ApiError

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
OLD, NEW = issue(["a"], now=NOW), issue(["a"], now=NOW)
WAITS: Final = Waits(timedelta(minutes=5), timedelta(minutes=30))


@pytest.mark.promise("O173")
def test_a_certificate_is_p256_for_the_names_and_signed_by_its_own_authority() -> None:
    pair = issue(["webhook.ns.svc", "127.0.0.1"], timedelta(days=7), NOW)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    authority = x509.load_pem_x509_certificate(pair.authority)
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == {"webhook.ns.svc", "127.0.0.1"}
    assert certificate.public_key().curve.name == "secp256r1"  # type: ignore[union-attr]
    assert pair.lifetime == (NOW - timedelta(hours=1), NOW + timedelta(days=7))
    assert rotation.is_usable(pair, ("webhook.ns.svc",), NOW)


def test_a_certificate_signs_nothing_and_its_authority_certificates_alone() -> None:
    pair = issue(["a"], now=NOW)
    for text, signs, is_authority in ((pair.certificate, False, False), (pair.authority, True, True)):
        extensions = x509.load_pem_x509_certificate(text).extensions
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        assert (usage.key_cert_sign, usage.crl_sign, usage.digital_signature) == (signs, signs, not signs)
        others = (usage.content_commitment, usage.key_encipherment, usage.data_encipherment)
        assert not any((*others, usage.key_agreement))
        assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is is_authority


@pytest.mark.promise("O173")
def test_the_key_of_the_authority_is_thrown_away() -> None:
    pair = issue(["a"], now=NOW)
    assert b"".join((pair.authority, pair.certificate, pair.key)).count(b"PRIVATE KEY-----\n") == 2, "one key"
    public_key = serialization.load_pem_private_key(pair.key, None).public_key()
    assert public_key == x509.load_pem_x509_certificate(pair.certificate).public_key()
    assert public_key != x509.load_pem_x509_certificate(pair.authority).public_key()


@pytest.mark.promise("O173")
def test_an_authority_vouches_for_no_other_certificate() -> None:
    mismatched = Pair(OLD.authority, NEW.certificate, NEW.key)
    assert not rotation.is_usable(mismatched, ("a",), NOW)


@pytest.mark.parametrize(
    ("pair", "hosts", "when"),
    [
        (OLD, ("b",), NOW),
        (OLD, ("a",), NOW + timedelta(days=91)),
        (OLD, ("a",), NOW - timedelta(days=1)),
        (Pair(OLD.authority, OLD.certificate, NEW.key), ("a",), NOW),
        (Pair(b"x", b"y", b"z"), ("a",), NOW),
    ],
    ids=["another name", "expired", "not yet valid", "another key", "garbage"],
)
def test_what_no_client_would_accept_is_not_usable(
    pair: Pair, hosts: tuple[str, ...], when: datetime
) -> None:
    assert not rotation.is_usable(pair, hosts, when)


def test_bundles_come_apart_into_the_certificates_they_were_made_of() -> None:
    bundle = join([OLD.authority, NEW.authority])
    assert split(bundle) == [OLD.authority, NEW.authority]
    assert split(b"\n" + bundle.replace(b"\n", b"\r\n") + b"\n\n") == [OLD.authority, NEW.authority]


def seen(**changes: Any) -> Observed:
    """The usual state: one certificate is served, its authority is published, nothing is under way."""
    usual = {
        "serving": OLD,
        "upcoming": None,
        "bundles": (OLD.authority,),
        "published_at": None,
        "switched_at": None,
    }
    return Observed(**(usual | changes))


BOTH: Final = join([OLD.authority, NEW.authority])
STEPS: Final[dict[str, tuple[Observed, str]]] = {
    "nothing is there": (seen(serving=None, bundles=(b"",)), "issue"),
    "all is well": (seen(), ""),
    "the bundle was lost": (seen(bundles=(b"",)), "publish"),
    "one of two webhooks lacks the bundle": (seen(bundles=(OLD.authority, b"")), "publish"),
    "a next one is there, not published": (seen(upcoming=NEW), "publish"),
    "published, but not noted since when": (seen(upcoming=NEW, bundles=(BOTH,)), "publish"),
    "published just now": (seen(upcoming=NEW, bundles=(BOTH,), published_at=NOW), ""),
    "published long enough": (
        seen(upcoming=NEW, bundles=(BOTH,), published_at=NOW - timedelta(minutes=5)),
        "switch",
    ),
    "published long ago, but lost since": (
        seen(upcoming=NEW, bundles=(OLD.authority,), published_at=NOW - timedelta(hours=1)),
        "publish",
    ),
    "switched just now": (seen(serving=NEW, bundles=(BOTH,), switched_at=NOW), ""),
    "switched long enough ago": (
        seen(serving=NEW, bundles=(BOTH,), switched_at=NOW - timedelta(minutes=30)),
        "drop",
    ),
}


@pytest.mark.parametrize("state", STEPS)
def test_the_next_step_when(state: str) -> None:
    observed, action = STEPS[state]
    assert next_step(observed, NOW, WAITS).action == action


@pytest.mark.parametrize(("force", "reason"), [(True, "asked for"), (False, "expires at 2026-05-30")])
def test_a_renewal_names_its_reason(force: bool, reason: str) -> None:
    assert reason in next_step(seen(), NOW + timedelta(days=89), WAITS, force=force).reason


@pytest.mark.promise("O176")
@pytest.mark.parametrize(("days", "action"), [(59, ""), (60, "prepare"), (90, "prepare")])
def test_a_certificate_lives_for_90_days_and_is_renewed_after_60(days: int, action: str) -> None:
    _, not_after = OLD.lifetime
    assert not_after == NOW + timedelta(days=90)
    assert next_step(seen(), NOW + timedelta(days=days), WAITS).action == action


@pytest.mark.promise("O174")
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=14))
def test_at_no_moment_is_a_certificate_served_that_a_published_bundle_does_not_vouch_for(
    minutes: list[tuple[int, bool]],
) -> None:
    """Whatever the times between runs, and however often a rotation is asked for.

    Replicas take up a Secret, and API servers a bundle, some time after it was written: what was
    replaced less than that ago counts as still in use.
    """
    state, now = seen(), NOW + timedelta(days=80)
    bundles = [(now - timedelta(days=1), state.bundles[0])]
    served = [(now - timedelta(days=1), OLD)]
    for pause, force in [(0, True), *minutes]:
        now += timedelta(minutes=pause)
        step = next_step(state, now, WAITS, force=force)
        change: dict[str, Any] = {}
        if step.action == "prepare":
            change = {"upcoming": issue(["a"], now=now)}
        elif step.action == "publish":
            change = {"bundles": (step.bundle,), "published_at": now}
        elif step.action == "switch":
            assert state.upcoming is not None
            change = {"serving": state.upcoming, "upcoming": None, "switched_at": now, "published_at": None}
            served.append((now, state.upcoming))
        elif step.action == "drop":
            change = {"bundles": (step.bundle,)}
        if "bundles" in change:
            bundles.append((now, change["bundles"][0]))
        state = Observed(**(vars(state) | change))
        for bundle in in_use(bundles, now, WAITS.publish):
            for pair in in_use(served, now, WAITS.switch):
                assert pair.authority in split(bundle)


def in_use(written: list[tuple[datetime, Any]], now: datetime, lag: timedelta) -> list[Any]:
    """The last value, and those before it that were replaced less than `lag` ago."""
    found = [written[-1][1]]
    for (_, value), (replaced_at, _) in itertools.pairwise(written):
        if now - replaced_at < lag:
            found.append(value)
    return found


# --- the command -----------------------------------------------------------------------------------


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    certs.add_parser(parser.add_subparsers())
    return parser.parse_args(["certs", *words])


def test_certs_issue_writes_files_that_a_server_can_use_and_replaces_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("issue", "--dir", str(tmp_path), "--host", "127.0.0.1", "--days", "3")
    assert certs.run(parsed(*words)) == 0
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    key = (tmp_path / "tls.key").read_bytes()
    assert certs.run(parsed(*words)) == 2
    assert "tls.key: File exists" in capsys.readouterr().err
    assert (tmp_path / "tls.key").read_bytes() == key


def test_certs_rotate_without_a_cluster_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certs.run(parsed("rotate", "--kubeconfig", str(tmp_path / "none"))) == 1
    assert "no connection to a cluster" in capsys.readouterr().err


# --- against the real API server -------------------------------------------------------------------


SYSTEM: Final = "/api/v1/namespaces/topogate-system"
ROTATION: Final = ["prepare", "publish", "switch", "drop"]


@pytest.fixture
def rotator(module_cluster: Cluster, called_webhook: Webhook) -> Iterator[Rotation]:
    """Rotates the loopback called_webhook's certificate, with waits of seconds instead of minutes."""
    api = module_cluster.api()
    create_system_namespace(api)
    waits = Waits(timedelta(seconds=1), timedelta(seconds=1))
    yield Rotation(api, waits=waits, hosts=HOSTS)
    for name in ("topogate-webhook-tls", "topogate-webhook-tls-next"):
        try:
            api.request("DELETE", f"{SYSTEM}/secrets/{name}")
        except ApiError as error:
            if error.status != 404:
                raise


def create_system_namespace(api: Api) -> None:
    try:
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "topogate-system"}})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def mount(api: Api, webhook: Webhook) -> None:
    """What the kubelet does: bring the Secret's files onto the webhook's disk, if they differ."""
    try:
        data = api.json("GET", f"{SYSTEM}/secrets/topogate-webhook-tls")["data"]
    except ApiError:
        return
    parts = [base64.b64decode(data[key]) for key in ("ca.crt", "tls.crt", "tls.key")]
    if parts[1] != webhook.pair.certificate:
        webhook.write_pair(Pair(*parts))


@contextlib.contextmanager
def repeated(*actions: tuple[Callable[[], None], float]) -> Iterator[None]:
    """Until the block ends, each action is repeated in a thread of its own, these seconds apart."""
    stop = threading.Event()

    def repeat(action: Callable[[], None], pause: float) -> None:
        while not stop.wait(pause):
            action()

    threads = [threading.Thread(target=repeat, args=each) for each in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.promise("O174")
def test_no_pod_is_lost_while_certificates_are_rotated_although_the_webhook_fails_closed(
    module_cluster: Cluster, called_webhook: Webhook, rotator: Rotation
) -> None:
    api = module_cluster.api()
    namespace = create_namespace(module_cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    rotator.run()
    mount(api, called_webhook)
    rotator.run(wait=True)
    first = called_webhook.pair
    created: list[bool] = []
    problems: list[str] = []
    shaken: set[int] = set()

    def create_pod() -> None:
        try:
            created.append(bool(create(api, namespace, gpu_pod())["spec"].get("schedulingGates")))
        except ApiError as error:
            problems.append(error.message)

    def shake_hands() -> None:
        """What an API server does that opens a connection at this very moment."""
        bundle = published(api)
        authorities = len(split(bundle))
        try:
            connect(called_webhook, bundle)
        except OSError as error:
            problems.append(f"{authorities} authorities: {error}")
        shaken.add(authorities)

    def created_after(count: int) -> bool:
        """Whether a pod is there that was begun later: two may have been under way."""
        return len(created) + len(problems) >= count + 3

    taken: list[str] = []
    with repeated(
        (create_pod, 0.0), (create_pod, 0.0), (lambda: mount(api, called_webhook), 0.3), (shake_hands, 0.02)
    ):
        while len(taken) < 2 * len(ROTATION):
            step = rotator.step(force=len(taken) % len(ROTATION) == 0)
            if step.action:
                taken.append(step.action)
                before = len(created) + len(problems)
                module_cluster.wait_for(f"a pod after {step.action}", partial(created_after, before))
            else:
                time.sleep(0.05)
    delete_pods(api, namespace)
    assert taken == ROTATION * 2
    assert problems == []
    assert all(created)
    assert shaken == {1, 2}  # handshakes were tried in both phases
    assert called_webhook.pair.certificate != first.certificate
    assert len(split(published(api))) == 1


def published(api: Api) -> bytes:
    """The caBundle that API servers get."""
    hook = api.json("GET", f"{WEBHOOKS}/topogate")["webhooks"][0]
    return base64.b64decode(hook["clientConfig"]["caBundle"])


def connect(webhook: Webhook, bundle: bytes) -> None:
    context = ssl.create_default_context(cadata=bundle.decode())
    with (
        socket.create_connection(("127.0.0.1", webhook.port), 10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1"),
    ):
        pass


@pytest.mark.promise("S11", "O176")
def test_the_shipped_role_suffices_for_the_shipped_command(
    module_cluster: Cluster, rotator: Rotation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    items = yaml.safe_load_all((MANIFESTS / "certificates.yaml").read_text())
    chosen = [item for item in items if item["kind"] in kinds]
    module_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(chosen))
    api = module_cluster.api()
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = api.json("POST", f"{SYSTEM}/serviceaccounts/certs/token", body=body)
    (tmp_path / "token").write_text(answer["status"]["token"])
    module_cluster.write_token_kubeconfig(tmp_path / "kubeconfig", tmp_path / "token")
    words = ["rotate", "--kubeconfig", str(tmp_path / "kubeconfig"), "--wait"]
    words += ["--publish-seconds", "0.5", "--switch-seconds", "0.5", *(f"--host={host}" for host in HOSTS)]
    assert certs.run(parsed(*words)) == 0
    assert certs.run(parsed(*words, "--force")) == 0
    output = capsys.readouterr().out
    assert "steps taken: issue" in output
    assert "steps taken: prepare, publish, switch, drop" in output
    with pytest.raises(ApiError, match="forbidden"):
        Api.connect(tmp_path / "kubeconfig", user_agent="test").request("GET", "/api/v1/secrets")
