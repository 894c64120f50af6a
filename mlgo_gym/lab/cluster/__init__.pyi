from ._cluster import RayCluster as RayCluster
