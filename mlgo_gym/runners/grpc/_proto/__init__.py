"""Code generated from ``protos/``; ``make protos`` makes it again. Needs grpcio and protobuf."""
