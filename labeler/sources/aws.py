"""Who an EC2 instance is: its id and region, as annotations, from the metadata service (IMDSv2).

The service does not publish the instance's place. cloud-provider-aws labels the Node with its network layers,
and SageMaker HyperPod with its UltraServer; the source ``node-labels`` takes the place from there.
"""

from collections.abc import Callable
from threading import Event
from typing import Final

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts, SourceError
from labeler.metadata import MetadataServer, url_option
from labeler.sources import Context, Options

URL: Final = "http://169.254.169.254"
_IDENTITY: Final = {
    LABELER_PREFIX + "aws-instance-id": "/latest/meta-data/instance-id",
    LABELER_PREFIX + "aws-region": "/latest/meta-data/placement/region",
}
_TOKEN_SECONDS: Final = "60"

OPTIONS: Final = ("url",)


def create(options: Options, context: Context) -> "AwsSource":
    """Source with the option ``url``, for tests."""
    return AwsSource(MetadataServer(url_option("aws", options, URL), {}))


class AwsSource:
    """This instance's identity."""

    def __init__(self, server: MetadataServer) -> None:
        self._server = server

    def discover(self) -> Facts:
        """Raises SourceError where the service gives no token (its hop limit may need the host's network)."""
        look = self._server.look()
        seconds = {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS}
        token = look.get("/latest/api/token", seconds, method="PUT")
        if token is None or not token.text:
            raise SourceError("the metadata service gives no token")
        if not (token.text.isascii() and token.text.isprintable()):
            raise SourceError("the metadata service's token can be no header")  # a secret: it is not shown
        headers = {"X-aws-ec2-metadata-token": token.text}
        return look.result(Facts(identity=look.texts(_IDENTITY, headers)))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """An instance's identity never changes."""
