from ._box import Box as Box
from ._box import Trial as Trial
from ._boxed_program import BoxedProgram as BoxedProgram
from ._image import Image as Image
