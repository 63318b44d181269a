"""Reads and closes the same descriptors in several threads for SECONDS.

All files below DIR have the same bytes, so every read gives those, or EBADF.

release.py DIR SECONDS
"""

import errno
import os
import random
import sys
import threading
import time

directory, seconds = sys.argv[1], float(sys.argv[2])
paths = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
expected = open(paths[0], "rb").read()
end = time.monotonic() + seconds
slots = [None] * 4
wrong = []
reads = 0


def opener(slot):
    chance = random.Random(slot)
    while time.monotonic() < end:
        fd = os.open(chance.choice(paths), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        slots[slot] = fd
        time.sleep(chance.random() / 2000)
        os.close(fd)


def reader(seed):
    global reads
    chance = random.Random(seed)
    while time.monotonic() < end:
        fd = slots[chance.randrange(len(slots))]
        if fd is None:
            continue
        offset, length = chance.randrange(len(expected)), chance.randrange(1, 200_000)
        try:
            got = os.pread(fd, length, offset)
        except OSError as error:
            if error.errno != errno.EBADF:
                wrong.append(str(error))
            continue
        reads += 1
        if got != expected[offset : offset + length]:
            wrong.append(f"wrong bytes at {offset}")


threads = [threading.Thread(target=opener, args=(i,)) for i in range(len(slots))]
threads += [threading.Thread(target=reader, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if wrong or not reads:
    sys.exit(f"{reads} reads, {len(wrong)} wrong: {wrong[:5]}")
