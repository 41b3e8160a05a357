"""`topogate-webhook` with short time-outs, so that tests need not wait for those that are shipped."""

import sys

from webhook.admission import app, serve, worker

FIRST_BYTE_SECONDS = 1.0
REQUEST_SECONDS = 1.5
KEEP_ALIVE_SECONDS = 4
CLASSES_STALE_SECONDS = 3.0

if __name__ == "__main__":
    worker.FIRST_BYTE_SECONDS = FIRST_BYTE_SECONDS
    worker.REQUEST_SECONDS = REQUEST_SECONDS
    serve.KEEP_ALIVE_SECONDS = KEEP_ALIVE_SECONDS
    app.CLASSES_STALE_SECONDS = CLASSES_STALE_SECONDS
    serve.CONNECTIONS = 40
    sys.exit(serve.main())
