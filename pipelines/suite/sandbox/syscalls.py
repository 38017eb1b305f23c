"""The system calls that a program in the sandbox may make, as a seccomp filter.

Calls that are not listed are refused, as is any that a later kernel adds. There are no new
processes, threads or programs, no sockets, no signals to others and no handlers of signals (a
handler is handed the frame it interrupts), no change of modes, owners, limits or mounts, no
shared memory. Landlock decides which files may be opened (child.py).

The format is in linux/filter.h and linux/seccomp.h, the numbers are in the kernel's
asm/unistd_64.h (x86_64) and asm-generic/unistd.h (aarch64).
"""

from errno import ENOSYS, EPERM
from struct import pack

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_* of linux/audit.h

# name, number on x86_64, number on aarch64 (- where it has none)
FREE = """
read 0 63           write 1 64          pread64 17 67       pwrite64 18 68      readv 19 65
writev 20 66        lseek 8 62          close 3 57          close_range 436 436 dup 32 23
dup2 33 -           dup3 292 24         sendfile 40 71      ftruncate 77 46     umask 95 166
stat 4 -            lstat 6 -           fstat 5 80          newfstatat 262 79   statx 332 291
access 21 -         faccessat 269 48    faccessat2 439 439  readlink 89 -       readlinkat 267 78
getdents64 217 61   getcwd 79 17        chdir 80 49         fchdir 81 50        rename 82 -
renameat 264 38     renameat2 316 276   unlink 87 -         unlinkat 263 35
brk 12 214          mmap 9 222          munmap 11 215       mremap 25 216       mprotect 10 226
madvise 28 233      futex 202 98        getrandom 318 278
poll 7 -            ppoll 271 73        select 23 -         pselect6 270 72     sched_yield 24 124
nanosleep 35 101    clock_nanosleep 230 115                 clock_gettime 228 113
clock_getres 229 114                    gettimeofday 96 169 time 201 -          times 100 153
getpid 39 172       getppid 110 173     gettid 186 178      getuid 102 174      geteuid 107 175
getgid 104 176      getegid 108 177     getgroups 115 158   getpgrp 111 -       getpgid 121 155
getsid 124 156      uname 63 160        sysinfo 99 179      getrusage 98 165
sched_getaffinity 204 123
rt_sigprocmask 14 135                   rt_sigreturn 15 139 restart_syscall 219 128
exit 60 93          exit_group 231 94
"""

# name, numbers, the argument (from 0) that must have one of the values
BY_ARGUMENT = [
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; F_SETOWN and F_SETSIG would send
    # any signal to any process
    ("fcntl", (72, 25), 1, (0, 1, 2, 3, 4, 1030)),
    ("ioctl", (16, 29), 1, (0x5401, 0x5450, 0x5451)),  # TCGETS, FIONCLEX, FIOCLEX
]
# name, numbers, the argument that holds the flags
OPENING = [("open", (2, None), 1), ("openat", (257, 56), 2)]
O_ACCMODE, O_WRONLY, O_RDWR, O_TRUNC = 3, 1, 2, 0o1000

# calls from here on have the same number on all machines; a C library that finds one missing
# falls back to an older one
RECENT = 424

LOAD, AND, RETURN = 0x20, 0x54, 0x06  # BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_RET|K
EQUAL, AT_LEAST, ANY_BIT = 0x15, 0x35, 0x45  # BPF_JMP|J*|K: JEQ, JGE, JSET
KILL, REFUSE, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000  # SECCOMP_RET_KILL_PROCESS, ERRNO, ALLOW
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

Instruction = tuple[int, int, int, int]  # code, steps to skip if true, if false, operand


def numbers(machine: str) -> dict[str, int]:
    """Number of each call of FREE that the machine has."""
    column = list(MACHINES).index(machine)
    words = FREE.split()
    rows = zip(words[::3], zip(words[1::3], words[2::3], strict=True), strict=True)
    return {name: int(row[column]) for name, row in rows if row[column] != "-"}


def returns(value: int) -> Instruction:
    return (RETURN, 0, 0, value)


def load(offset: int) -> Instruction:
    return (LOAD, 0, 0, offset)


def allow_values(values: tuple[int, ...]) -> list[Instruction]:
    """Allow if what is loaded is one of ``values``, else refuse."""
    tests = [step for v in values for step in ((EQUAL, 0, 1, v), returns(ALLOW))]
    return [*tests, returns(REFUSE | EPERM)]


def seccomp_filter(machine: str) -> bytes:
    """The filter, an array of struct sock_filter, for ``machine``, one of MACHINES."""
    column = list(MACHINES).index(machine)
    code = [load(MACHINE), (EQUAL, 1, 0, MACHINES[machine]), returns(KILL), load(NUMBER)]

    def on(number: int | None, *then: Instruction) -> None:
        if number is not None:
            code.extend(((EQUAL, 0, len(then), number), *then))

    for number in numbers(machine).values():
        on(number, returns(ALLOW))
    for _, both, argument, values in BY_ARGUMENT:
        # the low half, which is all the kernel reads of an int; both machines are little-endian
        on(both[column], load(ARGUMENTS + 8 * argument), *allow_values(values))
    for _, row, argument in OPENING:
        # Landlock before ABI 3 (Linux 6.2) lets a file that may only be read be truncated so
        on(
            row[column],
            load(ARGUMENTS + 8 * argument),
            (ANY_BIT, 1, 0, O_TRUNC),
            returns(ALLOW),
            (AND, 0, 0, O_ACCMODE),
            *allow_values((O_WRONLY, O_RDWR)),
        )
    code += [(AT_LEAST, 0, 1, RECENT), returns(REFUSE | ENOSYS), returns(REFUSE | EPERM)]
    return b"".join(pack("=HBBI", *step) for step in code)
