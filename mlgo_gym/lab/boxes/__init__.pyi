from ._box import Box as Box
from ._box import Trial as Trial
from ._image import Image as Image
from ._program import BoxedProgram as BoxedProgram
