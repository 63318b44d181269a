"""Tries every system call that would change something below ROOT; each must fail with EROFS.

writes.py ROOT FILE          as mounted
writes.py ROOT FILE daemon   after a remount with which the kernel sends writes to the daemon
"""

import ctypes
import errno
import os
import socket
import stat
import sys

root, name = sys.argv[1:3]
by_daemon = sys.argv[3:] == ["daemon"]
file = os.path.join(root, name)
directory = os.path.dirname(file)
new = os.path.join(root, "new")
beside = os.path.join(directory, "new")
before = open(file, "rb").read()
wrong = []


def refused(what, call, *args):
    try:
        call(*args)
    except OSError as error:
        if error.errno != errno.EROFS:
            wrong.append(f"{what}: {errno.errorcode.get(error.errno, error.errno)}")
    else:
        wrong.append(f"{what}: no error")


def write(path, flags):
    fd = os.open(path, flags, 0o644)
    try:
        os.write(fd, b"x")
        os.fsync(fd)
    finally:
        os.close(fd)


def with_writable(call):
    fd = os.open(file, os.O_RDWR)
    try:
        call(fd)
    finally:
        os.close(fd)


def with_readable(path, call):
    fd = os.open(path, os.O_RDONLY)
    try:
        call(fd)
    finally:
        os.close(fd)


def renameat2(old, target, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, old.encode(), -100, target.encode(), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def bind(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)


for flags in ("O_WRONLY", "O_RDWR", "O_WRONLY|O_APPEND", "O_RDWR|O_TRUNC", "O_WRONLY|O_CREAT"):
    value = 0
    for flag in flags.split("|"):
        value |= getattr(os, flag)
    refused(f"open an existing file {flags}", write, file, value)
refused("open O_RDONLY|O_TRUNC", write, file, os.O_RDONLY | os.O_TRUNC)
refused("open a new file O_CREAT", write, new, os.O_CREAT | os.O_WRONLY)
refused("open a new file O_CREAT|O_EXCL|O_RDWR", write, beside, os.O_CREAT | os.O_EXCL | os.O_RDWR)
refused("open a new file O_CREAT|O_RDONLY", write, new, os.O_CREAT | os.O_RDONLY)
if not by_daemon:
    refused("open O_TMPFILE", write, root, os.O_TMPFILE | os.O_RDWR)
refused("mkdir", os.mkdir, new)
refused("mkdir below", os.mkdir, beside)
refused("rmdir", os.rmdir, directory)
refused("unlink", os.unlink, file)
refused("rename a file", os.rename, file, new)
refused("rename a directory", os.rename, directory, new)
refused("rename no-replace", renameat2, file, new, 1)
refused("link", os.link, file, new)
refused("symlink", os.symlink, "target", new)
refused("mknod of a file", os.mknod, new, stat.S_IFREG | 0o644)
refused("mknod of a FIFO", os.mknod, new, stat.S_IFIFO | 0o644)
refused("bind a socket", bind, new)
refused("chmod", os.chmod, file, 0o777)
refused("chmod of the root", os.chmod, root, 0o777)
refused("fchmod", with_readable, file, lambda fd: os.fchmod(fd, 0o777))
refused("fchmod of a directory", with_readable, directory, lambda fd: os.fchmod(fd, 0o777))
refused("chown", os.chown, file, os.getuid(), os.getgid())
refused("lchown", os.lchown, file, os.getuid(), os.getgid())
refused("fchown", with_readable, file, lambda fd: os.fchown(fd, os.getuid(), os.getgid()))
refused("utimens", os.utime, file)
refused("utimens with times", lambda: os.utime(file, ns=(1, 1)))
refused("futimens", with_readable, file, lambda fd: os.utime(fd, ns=(1, 1)))
refused("truncate to nothing", os.truncate, file, 0)
refused("truncate to more", os.truncate, file, len(before) + 1)
refused("ftruncate", with_writable, lambda fd: os.ftruncate(fd, 0))
refused("fallocate", with_writable, lambda fd: os.posix_fallocate(fd, 0, len(before) + 4096))
refused("setxattr", os.setxattr, file, "user.new", b"x")
refused("setxattr of our own", os.setxattr, root, "user.zarrfs.pid", b"1")
refused("removexattr", os.removexattr, root, "user.zarrfs.source")
if not by_daemon:
    if not os.statvfs(root).f_flag & os.ST_RDONLY:
        wrong.append("statvfs does not say read-only")
    if os.access(file, os.W_OK):
        wrong.append("access W_OK is granted")

if os.path.lexists(new) or os.path.lexists(beside):
    wrong.append("something new is there")
if open(file, "rb").read() != before:
    wrong.append("the file has other bytes now")
print("\n".join(wrong))
