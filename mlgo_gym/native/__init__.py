"""Release mode: a policy's TFLite graph as native code, made by the LLVM inside llvmlite.

`read_tflite` turns a file into a `Graph`, `lower_graph` turns that into LLVM IR, `compile_model`
does both and makes an object of it, which can be bound to buffers in this process;
`native._freeze` leaves it on disk with a C header and a description. Neither TensorFlow nor
TFLite nor a linker takes part.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
