from ._dataset import Dataset as Dataset
from ._record import header_of as header_of
from ._record import record as record
from ._writer import DatasetWriter as DatasetWriter
