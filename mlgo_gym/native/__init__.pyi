from ._freeze import FrozenFiles as FrozenFiles
from ._freeze import freeze as freeze
from ._freeze import load_frozen as load_frozen
from ._graph import Graph as Graph
from ._lowering import lower_graph as lower_graph
from ._model import NativeModel as NativeModel
from ._model import compile_model as compile_model
from ._tflite_reader import read_tflite as read_tflite
