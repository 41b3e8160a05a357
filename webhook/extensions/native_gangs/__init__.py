"""Kubernetes' own gangs (PodGroups of scheduling.k8s.io): placed by topogate, bound as one by kube-scheduler.

The constraints of its PodGroups apply to a gang too. If the policy leaves such gangs to kube-scheduler, their
owners get an Event.
"""
