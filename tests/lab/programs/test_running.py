"""Programs in their sandbox: what they may, and what is said of what they may not."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from corpus_tools.scratch import process_namespace
from mlgo_gym.errors import WorkloadError
from mlgo_gym.lab.programs._meters import Instructions, count
from mlgo_gym.lab.programs._program import Program
from mlgo_gym.lab.programs._running import run_program
from tests.lab.programs.conftest import MakeProgram, sha256

IN_TEMPORARY = """#include <stdio.h>
int main(void) {
  FILE *file = fopen("PATH", "w");
  if (!file) { perror("PATH"); return 3; }
  return 0;
}
"""
AVX512 = 'int main(void) { __asm__ volatile("vpaddq %zmm0, %zmm1, %zmm2"); return 0; }\n'


LATE = "expected to end within 1 s, found it still running"
ALONE = "expected to start no process and to use no network, found it does"
MISSES = {
    "status": ("return 3;", "expected exit status 0, found 3"),
    "signal": (
        "*(volatile int *)8 = 1;",
        "expected exit status 0, found signal 11 (Segmentation fault)",
    ),
    "words": (
        r'fputs("no such\nthing", stderr); return 1;',
        "expected exit status 0, found 1; it said: no such thing",
    ),
    "output": (
        'puts("other");',
        f"expected standard output of SHA-256 {sha256('')}, found {sha256('other' + chr(10))}",
    ),
    "a loop": ("for (;;) ;", LATE),
    "a wait": ("pause();", LATE),
    "fork": ("fork();", ALONE),
    "system": ('return system("true");', ALONE),
    "network": ("socket(AF_INET, SOCK_DGRAM, 0);", ALONE),
    "much": (
        'for (;;) puts("much");',
        "expected files and output of at most 67108864 bytes, found more",
    ),
    "memory": (
        "char *volatile data = malloc((size_t)1 << 30); return !data;",
        "expected exit status 0, found 1",
    ),
    "illegal": (
        '__asm__(".byte 0x0f, 0x0b");',
        "expected instructions that the processor knows, or valgrind where it runs the program, "
        "found another; compile for -target-cpu x86-64",
    ),
}


@pytest.mark.parametrize("name", MISSES)
def test_what_programs_may_not(program: MakeProgram, name: str) -> None:
    body, expected = MISSES[name]
    headers = ("stdio.h", "stdlib.h", "unistd.h", "sys/socket.h")
    text = "".join(f"#include <{each}>\n" for each in headers)
    workload, path = program(
        f"{text}int main(void) {{ {body} }}\n",
        timeout_s=1 if expected == LATE else 60,
        memory_mib=512,
    )
    with pytest.raises(WorkloadError) as caught:
        run_program(workload, path)
    assert str(caught.value) == f"workload 'w': {expected}"
    assert not left_over()


def left_over() -> list[Path]:
    prefix = f"corpus_tools.{os.getuid()}-{process_namespace()}-{os.getpid()}-"
    return list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{prefix}*"))


def test_files_elsewhere(program: MakeProgram, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    workload, path = program(IN_TEMPORARY.replace("PATH", elsewhere))
    with pytest.raises(WorkloadError) as caught:
        run_program(workload, path)
    assert str(caught.value) == (
        f"workload 'w': expected exit status 0, found 3; it said: {elsewhere}: Permission denied; "
        "it reads what its workload names, and writes in its own folder, alone"
    )
    assert not Path(elsewhere).exists()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    workload, path = program(IN_TEMPORARY.replace("PATH", str(secret)).replace('"w"', '"r"'))
    with pytest.raises(WorkloadError, match="found 3; it said: .*/secret: Permission denied"):
        run_program(workload, path)


def test_what_programs_have(program: MakeProgram, tmp_path: Path) -> None:
    """Arguments, files, standard input, a folder of their own, and no environment."""
    body = """#include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int main(int count, char **words) {
      char text[100] = "";
      FILE *file = fopen(words[1], "r"), *own = fopen("own", "w");
      fgets(text, 50, file);
      fgets(text + strlen(text), 50, stdin);
      fputs("x", own);
      printf("%d %s %s %s\\n", count, words[0], text, getenv("HOME") ? "home" : "none");
      return remove("own") || 7;
    }
    """
    (tmp_path / "in").write_text("given")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("file+")
    settings = {"arguments": ("folder/file",), "files": ("folder/file",), "stdin": "in"}
    text = sha256("2 ../program file+given none\n")
    workload, path = program(body, **settings, exit_status=1, stdout_sha256=text)
    done = run_program(workload, path)
    assert (done.status, done.stdout) == (1, b"2 ../program file+given none\n")
    assert not left_over()


def test_threads_are_no_processes(program: MakeProgram) -> None:
    body = """#include <pthread.h>
    static void *nothing(void *data) { return data; }
    int main(void) {
      pthread_t thread;
      return pthread_create(&thread, 0, nothing, 0) || pthread_join(thread, 0);
    }
    """
    assert run_program(*program(body)).status == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
def test_an_instruction_that_valgrind_does_not_know(program: MakeProgram) -> None:
    workload, path = program(AVX512)
    with pytest.raises(WorkloadError) as caught:
        count(workload, Program(path, 0, "0"), Instructions.options)
    text = str(caught.value)
    assert text.startswith(
        "workload 'w': expected instructions that the processor knows, or valgrind where it runs "
        "the program, found another; compile for -target-cpu x86-64"
    )


MUCH = {
    "files": (
        "for (int i = 0; i < 8; ++i) fill(names[i]);",
        "expected files and output of at most 67108864 bytes, found more",
    ),
    "files without names": (
        "for (int i = 0; i < 8; ++i) { fill(names[i]); remove(names[i]); }",
        "expected files and output of at most 67108864 bytes, found more",
    ),
    "names": (
        'for (int i = 0; i < 17000; ++i) { sprintf(text, "%d", i); touch(text); }',
        "expected at most 16384 files and folders, found more",
    ),
    "threads": (
        "for (int i = 0; i < 300; ++i) start();",
        "expected at most 256 threads at once, found more",
    ),
}
FILL = """#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char text[1 << 20];
static const char *names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
static void fill(const char *name) {
  int file = open(name, O_CREAT | O_WRONLY, 0600);
  memset(text, 1, sizeof text);
  for (int i = 0; i < 20; ++i) write(file, text, sizeof text);
}
static void touch(const char *name) { close(open(name, O_CREAT | O_WRONLY, 0600)); }
static void *wait_(void *data) { pause(); return data; }
static void start(void) {
  pthread_t thread;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  pthread_create(&thread, &small, wait_, 0);
}
int main(void) {
"""


@pytest.mark.parametrize("name", MUCH)
def test_the_sum_has_limits(program: MakeProgram, name: str) -> None:
    """Each file and thread is small enough; the program would wait for long if nobody ended it."""
    body, expected = MUCH[name]
    workload, path = program(f"{FILL} {body} sleep(50); return 0; }}", timeout_s=60)
    with pytest.raises(WorkloadError) as caught:
        run_program(workload, path)
    assert str(caught.value) == f"workload 'w': {expected}"
    assert not left_over()


def test_memory_without_a_name(program: MakeProgram) -> None:
    """Memory that is not mapped would not count, so there is none; and few files are open."""
    body = """#define _GNU_SOURCE
    #include <fcntl.h>
    #include <sys/mman.h>
    int main(void) {
      int most = 0;
      while (open("/dev/null", O_RDONLY) >= 0) ++most;
      return memfd_create("a", 0) >= 0 || most > 64;
    }
    """
    assert run_program(*program(body)).status == 0


ESCAPES = {
    "mode": 'chmod("PATH", 0777)',
    "times": 'utimes("PATH", 0)',
    "owner": 'chown("PATH", 1, 1)',
    "limits": "prlimit(getppid(), RLIMIT_CPU, 0, &limit)",
    "priority": "setpriority(PRIO_PROCESS, getppid(), 10)",
    "shared memory": "shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT)",
    "a key": 'syscall(248, "user", "a", "b", 1L, -3L)',
    "a host's name": 'sethostname("a", 1)',
    "the caller": "kill(getppid(), 0)",
    "a shell": 'execl("/bin/sh", "sh", "-c", "exit 0", (char *)0)',
    "the caller's variables": "open(environ, O_RDONLY)",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64's calls")
@pytest.mark.parametrize("name", ESCAPES)
def test_what_is_out_of_reach(program: MakeProgram, tmp_path: Path, name: str) -> None:
    """Refused by the kernel, as root, too."""
    victim = tmp_path / "victim"
    victim.touch(0o600)
    headers = (
        *("errno.h", "fcntl.h", "signal.h", "stdio.h", "stdlib.h", "unistd.h", "sys/resource.h"),
        *("sys/shm.h", "sys/stat.h", "sys/syscall.h", "sys/time.h"),
    )
    text = "#define _GNU_SOURCE\n" + "".join(f"#include <{each}>\n" for each in headers)
    call = ESCAPES[name].replace("PATH", str(victim))
    body = f"""
    int main(void) {{
      struct rlimit limit = {{0, 0}};
      char environ[64];
      sprintf(environ, "/proc/%d/environ", getppid());
      return {call} < 0 ? 0 : 5;
    }}
    """
    workload, path = program(text + body)
    assert run_program(workload, path).status == 0
    assert victim.stat().st_mode & 0o777 == 0o600


def test_vfork_is_a_process(program: MakeProgram) -> None:
    workload, path = program("#include <unistd.h>\nint main(void) { if (!vfork()) _exit(0); }\n")
    with pytest.raises(WorkloadError, match="expected to start no process and to use no network"):
        run_program(workload, path)


def test_a_folder_that_is_deep_goes_all_the_same(program: MakeProgram) -> None:
    body = """#include <sys/stat.h>
    #include <unistd.h>
    int main(void) {
      for (int i = 0; i < 3000; ++i)
        if (mkdir("d", 0700) || chdir("d"))
          return 1;
      return 0;
    }
    """
    with pytest.raises(WorkloadError, match="expected at most 64 levels of folders, found more"):
        run_program(*program(body))
    assert not left_over()


def test_the_caller_is_out_of_sight_under_valgrind(program: MakeProgram) -> None:
    body = """#include <fcntl.h>
    #include <stdio.h>
    #include <unistd.h>
    int main(void) {
      char path[64];
      sprintf(path, "/proc/%d/environ", getppid());
      return open(path, O_RDONLY) >= 0;
    }
    """
    workload, path = program(body)
    assert count(workload, Program(path, 0, "0"), Instructions.options)["instructions"] > 1000
