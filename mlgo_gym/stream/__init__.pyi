from ._training_log import Context as Context
from ._training_log import Header as Header
from ._training_log import Observation as Observation
from ._training_log import Outcome as Outcome
from ._training_log import StreamDecoder as StreamDecoder
from ._training_log import TrainingLogReader as TrainingLogReader
from ._training_log import TrainingLogWriter as TrainingLogWriter

# isort: split
# For other packages of this project; not documented, and may change.

from ._channel import Channel as Channel
from ._channel import open_bytes as open_bytes
from ._channel import path_of as path_of
from ._channel import remove_stale_folders as remove_stale_folders
from ._readable import is_readable as is_readable
from ._readable import is_writable as is_writable
from ._training_log import MAX_FEATURES as MAX_FEATURES
from ._training_log import Event as Event
from ._training_log import feature_specs as feature_specs
from ._training_log import read_events as read_events
