from ._events import Context as Context
from ._events import Header as Header
from ._events import Observation as Observation
from ._events import Outcome as Outcome
from ._training_log import StreamDecoder as StreamDecoder
from ._training_log import TrainingLogReader as TrainingLogReader
from ._training_log import TrainingLogWriter as TrainingLogWriter
