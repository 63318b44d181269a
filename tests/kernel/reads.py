"""Reads MOUNTED in every way Python can and compares with the file SOURCE.

reads.py SOURCE MOUNTED
"""

import errno
import mmap
import os
import socket
import sys
import tempfile
import threading

source, mounted = sys.argv[1:]
expected = open(source, "rb").read()
size = len(expected)
fd = os.open(mounted, os.O_RDONLY)


def check(what, got, wanted):
    if got != wanted:
        at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
        sys.exit(f"{what}: {len(got)} bytes instead of {len(wanted)}, first difference at {at}")


def drop_pages():
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


# read(2) with odd sizes, from the start to the end.
for piece in (511, 4097, 12345, 1 << 20, 5 << 20):
    drop_pages()
    os.lseek(fd, 0, os.SEEK_SET)
    parts = []
    while part := os.read(fd, piece):
        parts.append(part)
    check(f"read({piece})", b"".join(parts), expected)

# readv and preadv over several buffers.
buffers = [bytearray(n) for n in (1, 4095, 4097, 70000, 0, 333)]
got = os.preadv(fd, buffers, 777)
check("preadv", b"".join(buffers)[:got], expected[777 : 777 + sum(map(len, buffers))])

# O_DIRECT: whole, at block borders, over the end, after the end.
direct = os.open(mounted, os.O_RDONLY | os.O_DIRECT)
for length, offset in ((size + 8192 & ~4095, 0), (1 << 20, 4096), (8192, size & ~4095), (4096, (size & ~4095) + 8192)):
    buffer = mmap.mmap(-1, length)
    got = os.preadv(direct, [buffer], offset)
    check(f"O_DIRECT {length} at {offset}", buffer[:got], expected[offset : offset + length])
os.close(direct)

# mmap, shared as numpy does it and private: whole, then single pages from the end.
for kind in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
    drop_pages()
    with mmap.mmap(fd, 0, kind, mmap.PROT_READ) as view:
        check("mmap from the end", bytes(view[i] for i in range(size - 1, -1, -4096)), expected[size - 1 :: -4096])
        check("mmap", view[:], expected)
    with mmap.mmap(fd, 0, kind, mmap.PROT_READ) as view:
        check("a second mmap", view[:], expected)

# sendfile to a file and to a socket.
drop_pages()
with tempfile.TemporaryFile() as out:
    done = 0
    while sent := os.sendfile(out.fileno(), fd, done, 300_001):
        done += sent
    out.seek(0)
    check("sendfile to a file", out.read(), expected)
ours, theirs = socket.socketpair()
parts = []


def drain():
    while part := theirs.recv(65536):
        parts.append(part)


drop_pages()
reader = threading.Thread(target=drain)
reader.start()
with ours:
    done = 0
    while sent := os.sendfile(ours.fileno(), fd, done, 1 << 20):
        done += sent
reader.join()
check("sendfile to a socket", b"".join(parts), expected)

# splice through a pipe.
drop_pages()
pipe_out, pipe_in = os.pipe()
done, parts = 0, []
while moved := os.splice(fd, pipe_in, 60_000, offset_src=done):
    done += moved
    while moved:
        part = os.read(pipe_out, moved)
        parts.append(part)
        moved -= len(part)
check("splice", b"".join(parts), expected)

# Seeking.
assert os.lseek(fd, 0, os.SEEK_END) == size
assert os.lseek(fd, 5, os.SEEK_DATA) == 5
assert os.lseek(fd, 5, os.SEEK_HOLE) == size
try:
    os.lseek(fd, size, os.SEEK_DATA)
    sys.exit("SEEK_DATA at the end found data")
except OSError as error:
    assert error.errno == errno.ENXIO, error
