from ._card import ModelCard as ModelCard
from ._card import OutputSpec as OutputSpec
from ._card import find_model as find_model
from ._card import read_card as read_card
from ._card import shipped_models as shipped_models
from ._emit_c import SourceFiles as SourceFiles
from ._emit_c import emit_c as emit_c
from ._freeze import FrozenFiles as FrozenFiles
from ._freeze import freeze as freeze
from ._freeze import load_frozen as load_frozen
from ._graph import Graph as Graph
from ._model import NativeModel as NativeModel
from ._model import compile_model as compile_model
from ._model import lower_graph as lower_graph
from ._tflite_reader import read_tflite as read_tflite

# isort: split
# For other packages of this project; not documented, and may change.

from ._card import CARD_FILE as CARD_FILE
from ._card import OUTPUT as OUTPUT
from ._card import OUTPUT_SPEC_FILE as OUTPUT_SPEC_FILE
from ._card import STEP_INPUTS as STEP_INPUTS
from ._card import choose_outputs as choose_outputs
from ._card import model_files as model_files
from ._card import parse_output_spec as parse_output_spec
from ._card import read_model_json as read_model_json
from ._card import record_last_test as record_last_test
from ._card import unreadable as unreadable
from ._emit_c import OBJECT as OBJECT
from ._emit_c import c_header as c_header
from ._freeze import check_machine as check_machine
from ._freeze import find_description as find_description
from ._model import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from ._model import BoundModel as BoundModel
from ._model import OperatorCode as OperatorCode
from ._model import check_same as check_same
from ._model import find_outputs as find_outputs
from ._saved_model import SIGNATURE as SIGNATURE
from ._saved_model import converted as converted
from ._saved_model import graph_file as graph_file
from ._tflite_writer import GraphWriter as GraphWriter
from ._tflite_writer import Operand as Operand
from ._tflite_writer import Value as Value
from ._tflite_writer import write_tflite as write_tflite
