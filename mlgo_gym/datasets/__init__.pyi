from ._dataset import Dataset as Dataset
from ._record import header_of as header_of
from ._record import record as record
from ._writer import DatasetWriter as DatasetWriter

# isort: split
# For other packages of this project; not documented, and may change.

from ._arrow import pa as pa
from ._arrow import pq as pq
from ._episodes import LABELS as LABELS
from ._episodes import Episode as Episode
from ._episodes import Source as Source
from ._episodes import episodes_of_report as episodes_of_report
from ._logs import LogFile as LogFile
from ._logs import TraceFile as TraceFile
from ._logs import export_log as export_log
from ._logs import open_recording as open_recording
from ._minari import MinariSet as MinariSet
from ._minari import export_minari as export_minari
from ._record import remaining as remaining
from ._sequence_examples import export_tfrecord as export_tfrecord
