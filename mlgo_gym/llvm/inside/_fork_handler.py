"""The signal handler that forks a compilation, compiled by the LLVM that it interrupts.

LLVM waits for advice inside ``read``. The handler runs in the middle of it, clones the process,
and in the clone puts other descriptors where the channel, the sockets and the pipes were. It is
installed so that the system restarts the interrupted ``read``, which then goes on at the clone's
own channel. No C compiler is needed, since the handler is LLVM IR.

`llvm._request` says what it is told. A signal without one changes nothing.
Only system calls are made here, all of them async-signal-safe; the process has one thread. The
clone is made with ``CLONE_PARENT``: it is a child of whoever started the worker, so it can be
waited for there and outlives the worker. Its standard input is a lifeline of its own (see
`llvm.worker._child`).
"""

from __future__ import annotations

import ctypes
from typing import Final

from mlgo_gym.llvm._request import FORK_SIGNAL, MAX_DESCRIPTORS, clone_number
from mlgo_gym.llvm.worker import _binding as binding

_HANDLER: Final = """
%pointer_and_size = type {{ ptr, i64 }}
%message = type {{ ptr, i32, ptr, i64, ptr, i64, i32 }}
%poll = type {{ i32, i16, i16 }}

declare ptr @__errno_location()
declare i64 @recvmsg(i32, ptr, i32)
declare i64 @syscall(i64, ...)
declare i32 @dup2(i32, i32)
declare i32 @close(i32)
declare i32 @getpid()
declare i32 @fcntl(i32, i32, ...)
declare i32 @poll(ptr, i64, i32)
declare i64 @write(i32, ptr, i64)
declare void @_exit(i32)

define void @on_fork_signal(i32 %signal) {{
entry:
  %errno = call ptr @__errno_location()
  %errno_before = load i32, ptr %errno
  %targets = alloca [{max_descriptors} x i32], align 8
  %attached = alloca [{attached_bytes} x i8], align 8
  %vector = alloca %pointer_and_size, align 8
  %request = alloca %message, align 8
  %answer = alloca i32, align 8
  %lifeline = alloca %poll, align 8
  store %pointer_and_size zeroinitializer, ptr %vector
  store %message zeroinitializer, ptr %request
  store %poll zeroinitializer, ptr %lifeline
  store i64 0, ptr %attached
  store ptr %targets, ptr %vector
  %vector_size = getelementptr %pointer_and_size, ptr %vector, i64 0, i32 1
  store i64 {targets_bytes}, ptr %vector_size
  %request_vector = getelementptr %message, ptr %request, i64 0, i32 2
  store ptr %vector, ptr %request_vector
  %request_vectors = getelementptr %message, ptr %request, i64 0, i32 3
  store i64 1, ptr %request_vectors
  %request_attached = getelementptr %message, ptr %request, i64 0, i32 4
  store ptr %attached, ptr %request_attached
  %request_attached_size = getelementptr %message, ptr %request, i64 0, i32 5
  store i64 {attached_bytes}, ptr %request_attached_size
  ; MSG_DONTWAIT | MSG_CMSG_CLOEXEC
  %received = call i64 @recvmsg(i32 {control}, ptr %request, i32 1073741888)
  %is_request = icmp sgt i64 %received, 0
  br i1 %is_request, label %check, label %end

check:
  ; where this process has no descriptors left, only some of what was attached arrives
  %arrived = load i64, ptr %attached
  %expected = add i64 %received, 16
  %is_whole = icmp eq i64 %arrived, %expected
  br i1 %is_whole, label %clone, label %refuse

refuse:
  %has_some = icmp ugt i64 %arrived, 16
  %some_bytes = sub i64 %arrived, 16
  %some = lshr i64 %some_bytes, 2
  %left = select i1 %has_some, i64 %some, i64 0
  br label %loop

clone:
  %all = lshr i64 %received, 2
  ; CLONE_PARENT | SIGCHLD, on the same stack
  %pid = call i64 (i64, ...) @syscall(
      i64 {clone_number}, i64 32785, i64 0, i64 0, i64 0, i64 0)
  %is_clone = icmp eq i64 %pid, 0
  br label %loop

loop:
  %index = phi i64 [ 0, %clone ], [ 0, %refuse ], [ %next, %done_with_it ]
  %count = phi i64 [ %all, %clone ], [ %left, %refuse ], [ %count, %done_with_it ]
  %is_branch = phi i1 [ %is_clone, %clone ], [ false, %refuse ], [ %is_branch, %done_with_it ]
  %is_last = icmp eq i64 %index, %count
  br i1 %is_last, label %after, label %each

each:
  ; what is attached comes after a header of 16 bytes
  %offset = add i64 %index, 4
  %attached_at = getelementptr i32, ptr %attached, i64 %offset
  %descriptor = load i32, ptr %attached_at
  br i1 %is_branch, label %take, label %done_with_it

take:
  %target_at = getelementptr i32, ptr %targets, i64 %index
  %target = load i32, ptr %target_at
  %taken = call i32 @dup2(i32 %descriptor, i32 %target)
  br label %done_with_it

done_with_it:
  %closed = call i32 @close(i32 %descriptor)
  %next = add i64 %index, 1
  br label %loop

after:
  br i1 %is_branch, label %branch, label %end

branch:
  %own_pid = call i32 @getpid()
  ; F_SETOWN, then F_SETFL with O_ASYNC: the kernel ends it by SIGIO when its parent is gone
  %owned = call i32 (i32, i32, ...) @fcntl(i32 0, i32 8, i32 %own_pid)
  %watched = call i32 (i32, i32, ...) @fcntl(i32 0, i32 4, i32 8192)
  %hung_up = call i32 @poll(ptr %lifeline, i64 1, i32 0)
  %is_orphan = icmp sgt i32 %hung_up, 0
  br i1 %is_orphan, label %orphan, label %announce

orphan:
  call void @_exit(i32 1)
  unreachable

announce:
  store i32 %own_pid, ptr %answer
  %written = call i64 @write(i32 {control}, ptr %answer, i64 4)
  br label %end

end:
  store i32 %errno_before, ptr %errno
  ret void
}}
"""

_CALLER: Final = """
declare void @on_fork_signal(i32)
define void @call_it(i32 %signal) {
  call void @on_fork_signal(i32 %signal)
  ret void
}
"""


class ForkHandler:
    """The handler, compiled; once it is installed it stays for the process's life.

    It is compiled with the options of LLVM that hold: none of them may ask for advice or end code
    generation early.
    """

    def __init__(self, control: int) -> None:
        self.control: Final = control
        text = _HANDLER.format(
            control=control,
            clone_number=clone_number(),
            max_descriptors=MAX_DESCRIPTORS,
            targets_bytes=4 * MAX_DESCRIPTORS,
            attached_bytes=16 + 4 * MAX_DESCRIPTORS,
        )
        self._code = binding.LoadedCode(binding.compile_native(text, None).data, _CALLER)

    def install(self) -> None:
        """Have the signal handled from now on."""
        install = ctypes.CDLL(None).signal  # BSD semantics: interrupted calls are restarted
        install.argtypes, install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        install(FORK_SIGNAL, self._code.address("on_fork_signal"))
