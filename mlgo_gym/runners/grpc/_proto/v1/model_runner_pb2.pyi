from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompilerMessage(_message.Message):
    __slots__ = ("header", "context", "observation", "outcome")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    header: Header
    context: Context
    observation: Observation
    outcome: Outcome
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., context: _Optional[_Union[Context, _Mapping]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class HostMessage(_message.Message):
    __slots__ = ("acknowledgement", "advice")
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    acknowledgement: Acknowledgement
    advice: Advice
    def __init__(self, acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ..., advice: _Optional[_Union[Advice, _Mapping]] = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ("name", "port", "type", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    port: int
    type: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., port: _Optional[int] = ..., type: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("features", "advice", "score")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    advice: TensorSpec
    score: TensorSpec
    def __init__(self, features: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., advice: _Optional[_Union[TensorSpec, _Mapping]] = ..., score: _Optional[_Union[TensorSpec, _Mapping]] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("features", "advice", "error")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    advice: TensorSpec
    error: str
    def __init__(self, features: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., advice: _Optional[_Union[TensorSpec, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class Context(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("number", "tensors")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    number: int
    tensors: bytes
    def __init__(self, number: _Optional[int] = ..., tensors: _Optional[bytes] = ...) -> None: ...

class Advice(_message.Message):
    __slots__ = ("observation", "tensor")
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    observation: int
    tensor: bytes
    def __init__(self, observation: _Optional[int] = ..., tensor: _Optional[bytes] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("observation", "tensor")
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    observation: int
    tensor: bytes
    def __init__(self, observation: _Optional[int] = ..., tensor: _Optional[bytes] = ...) -> None: ...
