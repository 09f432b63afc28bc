"""The program of the zygote: a small process that forks children for the daemon (`agentd.process.zygote`).

Run by path with an interpreter that imports nothing of a site: only what is in here is in its memory, which is what
makes its forks cheap. It serves one request after the other from the socket whose number is its argument, and ends
when that ends. It answers each with the child's pid, or with a negative errno when there is none.

A child is created with ``CLONE_PARENT`` (clone3(2)), so it is the daemon's own: the daemon waits for it and nobody
here has to. What fails on its way to its program it writes to the request's last descriptor, which the exec closes.
"""

import _socket
import ctypes
import errno
import marshal
import os
import sys
from signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal

TYPE_CHECKING = False  # importing typing would add to what is forked
if TYPE_CHECKING:
    from typing import Any

    Asked = tuple[Any, ...]

HEAD = 8
"""Bytes of a length, and of an answer."""
MOST_DESCRIPTORS = 8
CLONE_PARENT = 0x8000
CLONE3 = 435
"""The call's number, the same on every architecture."""
_CMSG_CLOEXEC = 0x40000000
"""MSG_CMSG_CLOEXEC of recvmsg(2)."""


def serve(channel: _socket.socket) -> None:
    """Answer requests until the daemon is gone."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    arguments = (ctypes.c_uint64 * 11)(CLONE_PARENT)
    while True:
        head, ancillary, _, _ = channel.recvmsg(
            HEAD, _socket.CMSG_SPACE(4 * MOST_DESCRIPTORS), _CMSG_CLOEXEC | _socket.MSG_WAITALL
        )
        if len(head) < HEAD:
            return
        fds = [
            int.from_bytes(data[at : at + 4], sys.byteorder)
            for level, kind, data in ancillary
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
            for at in range(0, len(data), 4)
        ]
        length = int.from_bytes(head, sys.byteorder)
        body = bytearray()
        while len(body) < length:
            piece = channel.recv(length - len(body))
            if not piece:
                return
            body += piece
        request = marshal.loads(body)
        pid = syscall(CLONE3, arguments, ctypes.sizeof(arguments))
        if pid == 0:
            become(request, fds)
        answer = -ctypes.get_errno() if pid < 0 else pid
        for fd in fds:
            os.close(fd)
        channel.sendall(answer.to_bytes(HEAD, sys.byteorder, signed=True))


def become(request: "Asked", fds: list[int]) -> None:
    """Be the child that was asked for; never returns. The order is that of `subprocess`, whose place this takes."""
    report = fds[3]
    stage = "start"
    try:
        programs, argv, env, cwd, uid, gid, groups, umask = request
        for number in range(3):
            os.dup2(fds[number], number, inheritable=True)
        if cwd is not None:
            stage = "cwd"
            os.fchdir(fds[4]) if len(fds) > 4 else os.chdir(cwd)
            stage = "start"
        if umask is not None:
            os.umask(umask)
        signal(SIGPIPE, SIG_DFL)
        signal(SIGXFSZ, SIG_DFL)
        os.setsid()
        if groups is not None:
            os.setgroups(groups)
        if gid is not None:
            os.setregid(gid, gid)
        if uid is not None:
            os.setreuid(uid, uid)
        stage = "program"
        found: OSError | None = None
        for program in programs:
            try:
                os.execve(program, argv, env)
            except OSError as error:
                # The first place where something is in the way says why; else the last one does.
                if found is None or found.errno in (errno.ENOENT, errno.ENOTDIR):
                    found = error
        raise found or FileNotFoundError(errno.ENOENT, "")
    except BaseException as error:
        number = (error.errno if isinstance(error, OSError) else None) or errno.EINVAL
        os.write(report, marshal.dumps((stage, number)))
    finally:
        os._exit(255)


if __name__ == "__main__":
    connected = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(connected.fileno(), False)
    connected.sendall(b"!")
    serve(connected)
