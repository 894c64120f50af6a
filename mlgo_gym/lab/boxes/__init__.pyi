from ._box import Box as Box
from ._box import Trial as Trial
from ._image import Image as Image
from ._program import BoxedProgram as BoxedProgram

# isort: split
# For other packages of this project; not documented, and may change.

from ._effects import Effects as Effects
