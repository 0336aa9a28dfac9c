"""Checks of Kubernetes manifests of Ray clusters without a cluster: schemas, and rules that no schema has."""
