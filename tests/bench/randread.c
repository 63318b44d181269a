/*
 * Random reads, timed, by several processes at a time.
 *
 *     randread keys   PROCESSES SECONDS LIST         open + read all + close of the lines of LIST
 *     randread blocks PROCESSES SECONDS BYTES FILE   pread of BYTES at random multiples of BYTES
 *     randread touch  MEBIBYTES                      only takes memory from the system, and gives it back
 *
 * Nothing is read twice, so that no cache that fills meanwhile is measured: the lines (which the
 * caller shuffles) and the blocks are dealt out to the processes, and a run ends when they are used
 * up or the time is.
 *
 * Prints one line: operations, bytes, seconds. Ends with 1 if any call fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PROCESSES 64

struct tally {
    volatile uint64_t operations, bytes;
    volatile double seconds;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "randread: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The lines of a file, as strings. */
static char **lines(const char *path, uint64_t *count) {
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status) < 0)
        die(path);
    char *text = malloc(status.st_size + 1);
    if (!text || read(fd, text, status.st_size) != status.st_size)
        die(path);
    close(fd);
    text[status.st_size] = 0;
    char **list = malloc(sizeof *list * (status.st_size / 2 + 1));
    if (!list)
        die("malloc");
    *count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        list[(*count)++] = line;
    return list;
}

static uint64_t read_all(const char *path, char *buffer, size_t room) {
    uint64_t bytes = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        die(path);
    while ((got = read(fd, buffer, room)) > 0) {
        bytes += got;
        /* A short read of a regular file is its end, as every reader of small files knows. */
        if ((size_t)got < room)
            break;
    }
    if (got < 0)
        die(path);
    close(fd);
    return bytes;
}

static int touch(size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "touch"))
        return touch(strtoul(argv[2], NULL, 10) << 20);
    if (argc < 5) {
        fprintf(stderr, "randread keys PROCESSES SECONDS LIST | blocks PROCESSES SECONDS BYTES FILE"
                        " | touch MEBIBYTES\n");
        return 2;
    }
    int blocks = !strcmp(argv[1], "blocks");
    int processes = atoi(argv[2]);
    double span = atof(argv[3]);
    if (processes < 1 || processes > MAX_PROCESSES || span <= 0 || (blocks && argc < 6))
        return 2;

    size_t room = blocks ? strtoul(argv[4], NULL, 10) : 1 << 20;
    uint64_t count = 0;
    char **list = NULL;
    int fd = -1;
    if (blocks) {
        struct stat status;
        fd = open(argv[5], O_RDONLY);
        if (fd < 0 || fstat(fd, &status) < 0)
            die(argv[5]);
        count = status.st_size / room;
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    } else {
        list = lines(argv[4], &count);
    }
    uint64_t *order = malloc(sizeof *order * (count + 1)), seed = 1;
    if (!order)
        die("malloc");
    for (uint64_t place = 0; place < count; place++) {
        uint64_t other = blocks ? next_random(&seed) % (place + 1) : place;
        order[place] = order[other];
        order[other] = place;
    }
    if (!count)
        return 2;
    struct tally *tallies = mmap(NULL, sizeof *tallies * MAX_PROCESSES, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies == MAP_FAILED)
        die("mmap");
    double begin = now() + 0.02;
    for (int number = 0; number < processes; number++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child)
            continue;
        char *buffer = aligned_alloc(4096, (room + 4095) & ~(size_t)4095);
        if (!buffer)
            die("aligned_alloc");
        memset(buffer, 1, room);
        uint64_t operations = 0, bytes = 0;
        while (now() < begin)
            ;
        double end = begin + span, t = begin;
        for (uint64_t turn = number; turn < count && t < end; turn += processes) {
            uint64_t pick = order[turn];
            if (blocks) {
                ssize_t got = pread(fd, buffer, room, pick * room);
                if (got != (ssize_t)room)
                    die("pread");
                bytes += got;
            } else {
                bytes += read_all(list[pick], buffer, room);
            }
            operations++;
            t = now();
        }
        tallies[number].operations = operations;
        tallies[number].bytes = bytes;
        tallies[number].seconds = t - begin;
        _exit(0);
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    uint64_t operations = 0, bytes = 0;
    double seconds = 0;
    for (int number = 0; number < processes; number++) {
        operations += tallies[number].operations;
        bytes += tallies[number].bytes;
        if (tallies[number].seconds > seconds)
            seconds = tallies[number].seconds;
    }
    printf("%llu %llu %.6f\n", (unsigned long long)operations, (unsigned long long)bytes, seconds);
    return failed != 0;
}
