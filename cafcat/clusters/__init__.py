"""Clusters that run the work of cafcat on many hosts: Dask, Ray, and processes of this host."""

from cafcat.clusters.opening import Cluster, open_cluster

__all__ = ["Cluster", "open_cluster"]
