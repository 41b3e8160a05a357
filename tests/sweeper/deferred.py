"""Pods whose release the API server has no time for."""

from tests.sweeper.pods import job_pod
from webhook.kube.client import ApiError

PODS = [job_pod(number) for number in range(20)]


BUSY = ApiError(429, "TooManyRequests", "too many requests, please try again later")
