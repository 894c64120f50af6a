from ._card import ModelCard as ModelCard
from ._card import find_model as find_model
from ._card import read_card as read_card
from ._card import shipped_models as shipped_models
from ._output_spec import OutputSpec as OutputSpec
