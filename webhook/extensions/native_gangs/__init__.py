"""Kubernetes' own gangs (PodGroups of scheduling.k8s.io): placed by topogate, bound as one by kube-scheduler.

A gang is placed by what its PodGroups say as well. Where the policy leaves such gangs, that is reported.
"""
