from ._client import GrpcInteractiveModelRunner as GrpcInteractiveModelRunner
from ._server import GrpcHost as GrpcHost
from ._server import serve_grpc as serve_grpc
from ._wire import StreamLimits as StreamLimits
