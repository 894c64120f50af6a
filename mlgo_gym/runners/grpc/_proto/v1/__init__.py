"""Version 1 of the gRPC contract, generated from ``protos/mlgo_gym/v1``."""
