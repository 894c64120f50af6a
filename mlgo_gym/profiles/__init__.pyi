from ._attach import Attached as Attached
from ._attach import attach_profile as attach_profile
from ._collect import collect_profile as collect_profile
from ._file import ProfileFile as ProfileFile
