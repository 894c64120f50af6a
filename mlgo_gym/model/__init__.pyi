from ._card import ModelCard as ModelCard
from ._card import find_model as find_model
from ._card import read_card as read_card
from ._card import shipped_models as shipped_models
from ._emit_c import SourceFiles as SourceFiles
from ._emit_c import emit_c as emit_c
from ._freeze import FrozenFiles as FrozenFiles
from ._freeze import freeze as freeze
from ._freeze import load_frozen as load_frozen
from ._graph import Graph as Graph
from ._lowering import lower_graph as lower_graph
from ._model import NativeModel as NativeModel
from ._model import compile_model as compile_model
from ._output_spec import OutputSpec as OutputSpec
from ._tflite_reader import read_tflite as read_tflite

# isort: split
# For other packages of this project; not documented, and may change.

from ._c_header import OBJECT as OBJECT
from ._c_header import c_header as c_header
from ._card import CARD_FILE as CARD_FILE
from ._card import record_last_test as record_last_test
from ._compiler import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from ._freeze import check_machine as check_machine
from ._freeze import find_description as find_description
from ._graph_writer import GraphWriter as GraphWriter
from ._graph_writer import Operand as Operand
from ._graph_writer import Value as Value
from ._model import BoundModel as BoundModel
from ._model import check_same as check_same
from ._model import find_outputs as find_outputs
from ._output_spec import OUTPUT as OUTPUT
from ._output_spec import OUTPUT_SPEC_FILE as OUTPUT_SPEC_FILE
from ._output_spec import STEP_INPUTS as STEP_INPUTS
from ._output_spec import choose_outputs as choose_outputs
from ._output_spec import model_files as model_files
from ._output_spec import parse_output_spec as parse_output_spec
from ._output_spec import read_model_json as read_model_json
from ._output_spec import unreadable as unreadable
from ._profile import OperatorCode as OperatorCode
from ._saved_model import SIGNATURE as SIGNATURE
from ._saved_model import converted as converted
from ._saved_model import graph_file as graph_file
from ._tflite_writer import write_tflite as write_tflite
