"""Model directories, and their TFLite graphs as native code, made by the LLVM inside llvmlite.

A directory holds a graph, its outputs and a card; some ship with the package. `read_tflite` turns
a graph into a `Graph`, `lower_graph` that into LLVM IR, and `compile_model` does both and makes an
object, which can be bound to buffers in this process. `freeze` leaves it on disk with a C header
and a description. Neither TensorFlow nor TFLite nor a linker takes part.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
