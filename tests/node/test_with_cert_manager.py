"""The overlay cert-manager beside cert-manager's own controllers: they issue, inject and issue again.

They run where `hack/test --cert-manager` has built them once. cert-manager's admission webhook is not there
(see hack/certmanager); it would check what users write.
"""

import base64
from collections.abc import Iterator

import pytest
from cryptography import x509

from hack.local import processes
from hack.local.cluster import Cluster, ClusterError
from hack.local.go_programs import CERT_MANAGER, CRDS
from hack.local.install import SYSTEM, WEBHOOKS
from hack.local.install_real import RealInstallation
from labeler.contract import keys
from tests.node.conftest import clean_real
from tests.support import create_namespace

SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"
SERVING = "topogate-webhook-tls"

pytestmark = pytest.mark.skipif(
    not CERT_MANAGER.binary.exists(),
    reason="NOT RUN: the overlay cert-manager beside cert-manager's own controllers, which are not built "
    "here; hack/test --cert-manager builds them, once a machine",
)


@pytest.fixture(scope="module")
def issued(real_control_plane: Cluster) -> Iterator[Cluster]:
    """The overlay, applied and ready."""
    cluster = real_control_plane
    clean_real(cluster)
    definitions = str(CERT_MANAGER.folder / CRDS)
    cluster.kubectl("apply", "--server-side", "-f", definitions)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    command = [str(CERT_MANAGER.binary), f"--kubeconfig={cluster.kubeconfig}"]
    program = processes.start(command, cluster.log("certmanager"), tied=True)
    try:
        installation = RealInstallation(cluster, overlay="overlays/cert-manager")
        installation.apply()
        installation.wait()
        cluster.wait_for("the authority in the webhook's configuration", lambda: bundle_of(cluster) != "")
        yield cluster
    except ClusterError as error:
        raise AssertionError(f"{error}\n{cluster.log('certmanager').read_text()[-3000:]}") from error
    finally:
        processes.stop(program)
        cluster.kubectl("delete", "-f", definitions, "--wait=false")
        clean_real(cluster)


def secret(cluster: Cluster, name: str) -> dict[str, bytes]:
    data = cluster.api().json("GET", f"{SECRETS}/{name}")["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def bundle_of(cluster: Cluster) -> str:
    """The authority by which the API server knows the webhook, "" for none yet."""
    return str(cluster.api().json("GET", WEBHOOKS)["webhooks"][0]["clientConfig"].get("caBundle", ""))


@pytest.mark.promise("O179")
def test_the_certificates_are_issued_by_its_controllers(issued: Cluster) -> None:
    issued.kubectl("wait", "-n", SYSTEM, "--for=condition=Ready", "certificate", "--all", "--timeout=120s")
    names = x509.load_pem_x509_certificate(secret(issued, SERVING)["tls.crt"]).extensions
    served = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"webhook.{SYSTEM}.svc" in served.get_values_for_type(x509.DNSName)


@pytest.mark.promise("O179")
def test_the_api_server_reaches_the_webhook_by_the_authority_that_was_injected(issued: Cluster) -> None:
    assert base64.b64decode(bundle_of(issued)) == secret(issued, SERVING)["ca.crt"]
    namespace = create_namespace(issued, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    body = {"metadata": {"name": "gpu"}, "spec": {"containers": [container]}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = issued.api().json("POST", path, body=body, query={"dryRun": "All"})
    assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == [keys.GATE]


def test_our_own_issuing_is_not_there(issued: Cluster) -> None:
    names = issued.kubectl("get", "deployments", "-n", SYSTEM, "-o", "name").stdout.split()
    assert "deployment.apps/webhook" in names
    assert "deployment.apps/certs" not in names


@pytest.mark.promise("O179")
def test_a_new_serving_certificate_is_of_the_authority_that_the_api_server_knows(issued: Cluster) -> None:
    before, bundle = secret(issued, SERVING), bundle_of(issued)
    issued.api().request("DELETE", f"{SECRETS}/{SERVING}")

    def issued_again() -> bool:
        found = issued.kubectl("get", "secret", SERVING, "-n", SYSTEM, check=False)
        return found.returncode == 0 and secret(issued, SERVING)["tls.crt"] != before["tls.crt"]

    issued.wait_for("another serving certificate", issued_again)
    after = secret(issued, SERVING)
    assert after["tls.key"] != before["tls.key"]
    authority = x509.load_pem_x509_certificate(base64.b64decode(bundle))
    x509.load_pem_x509_certificate(after["tls.crt"]).verify_directly_issued_by(authority)
    assert bundle_of(issued) == bundle
