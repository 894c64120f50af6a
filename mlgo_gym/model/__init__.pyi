from ._card import ModelCard as ModelCard
from ._card import read_card as read_card
from ._output_spec import OutputSpec as OutputSpec
from ._shipped import find_model as find_model
from ._shipped import shipped_models as shipped_models
