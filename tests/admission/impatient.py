"""`topogate-webhook` with other time-outs, so that tests need not wait for those that are shipped.

Each is either short, since it is waited for, or longer than any test takes on the busiest machine.
"""

import json
import os
import sys
from importlib import import_module
from typing import Final

from webhook.admission import serve

VARIABLE: Final = "TOPOGATE_TEST_TIMES"
FIRST_BYTE: Final = "worker.FIRST_BYTE_SECONDS"
REQUEST: Final = "worker.REQUEST_SECONDS"
KEEP_ALIVE: Final = "serve.KEEP_ALIVE_SECONDS"
HANDSHAKE: Final = "tls.HANDSHAKE_SECONDS"
NEVER: Final = 3600
TIMES: Final[dict[str, float]] = {
    FIRST_BYTE: 1.0,
    REQUEST: 1.5,
    KEEP_ALIVE: NEVER,
    "app.CLASSES_STALE_SECONDS": 3.0,
    "serve.CONNECTIONS": 40,
}

if __name__ == "__main__":
    for name, value in (TIMES | json.loads(os.environ[VARIABLE])).items():
        module, attribute = name.split(".")
        setattr(import_module(f"webhook.admission.{module}"), attribute, value)
    sys.exit(serve.main())
