"""Interactive runners over gRPC: the compiler's side asks, the host's side answers.

The contract is ``protos/mlgo_gym/v1/model_runner.proto``. A host serves any runner. Using its names
needs the extra ``grpc``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
