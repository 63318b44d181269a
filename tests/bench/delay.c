/*
 * A web server's other door, through which every request takes longer, and is counted.
 *
 *     delay SERVER_PORT MILLISECONDS LOG
 *
 * Listens on a free port of 127.0.0.1, which it prints, and hands each request on to SERVER_PORT
 * after so many milliseconds: one thread for each connection, bodies moved by the kernel (splice),
 * so that it passes more than any client takes. A new connection costs nothing more, and there is
 * no limit to the bytes a second: it is the time of a round trip that is measured with it.
 *
 * Appends to LOG, for each answer as it begins: when its request came (seconds of the monotonic
 * clock), method, target, range or `-`, status, bytes of its body (0 where none follows, -1 where
 * its length is not announced).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES (64 << 10)
#define PIPE_BYTES (1 << 20)

static int server_port, log_file;
static struct timespec pause_time;

static void die(const char *what) {
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* What has come from one side and was not handed on yet. */
struct side {
    int fd;
    size_t bytes;
    char data[HEAD_BYTES + 1];
};

static int send_all(int fd, const char *data, size_t bytes) {
    while (bytes) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        data += sent;
        bytes -= sent;
    }
    return 0;
}

static void drop(struct side *side, size_t bytes) {
    side->bytes -= bytes;
    memmove(side->data, side->data + bytes, side->bytes);
}

/* More of what a side sends; fails at its end. */
static int more(struct side *side) {
    if (side->bytes == HEAD_BYTES)
        return -1;
    ssize_t got = recv(side->fd, side->data + side->bytes, HEAD_BYTES - side->bytes, 0);
    if (got <= 0)
        return -1;
    side->bytes += got;
    return 0;
}

/* Length of the head that the side's data begin with; 0 if it ends before one is whole. */
static size_t head(struct side *side) {
    for (;;) {
        char *end = memmem(side->data, side->bytes, "\r\n\r\n", 4);
        if (end)
            return end - side->data + 4;
        if (more(side) < 0)
            return 0;
    }
}

/* The value of a header, cut to the room there is; `-` if there is none. */
static void header(const char *data, size_t length, const char *name, char *value, size_t room) {
    size_t name_length = strlen(name);
    const char *line = data, *end = data + length;
    strcpy(value, "-");
    while ((line = memmem(line, end - line, "\r\n", 2))) {
        line += 2;
        if ((size_t)(end - line) <= name_length || strncasecmp(line, name, name_length) || line[name_length] != ':')
            continue;
        line += name_length + 1;
        line += strspn(line, " \t");
        size_t bytes = strcspn(line, "\r\n");
        if (bytes >= room)
            bytes = room - 1;
        memcpy(value, line, bytes);
        value[bytes] = 0;
        return;
    }
}

/* Hands on `left` bytes of a body, or all there are if it is negative. */
static int pass(struct side *from, int to, int64_t left, int pipes[2]) {
    size_t own = left < 0 || (int64_t)from->bytes < left ? from->bytes : (size_t)left;
    if (send_all(to, from->data, own) < 0)
        return -1;
    drop(from, own);
    if (left > 0)
        left -= own;
    while (left) {
        size_t most = left < 0 || left > PIPE_BYTES ? PIPE_BYTES : (size_t)left;
        ssize_t got = splice(from->fd, NULL, pipes[1], NULL, most, SPLICE_F_MOVE);
        if (got <= 0)
            return left < 0 && got == 0 ? 0 : -1;
        for (ssize_t rest = got; rest;) {
            int flags = SPLICE_F_MOVE | (left > got ? SPLICE_F_MORE : 0);
            ssize_t sent = splice(pipes[0], NULL, to, NULL, rest, flags);
            if (sent <= 0)
                return -1;
            rest -= sent;
        }
        if (left > 0)
            left -= got;
    }
    return 0;
}

/* Hands on a body in chunks, without a look at what is in them but their lengths. */
static int pass_chunks(struct side *from, int to, int pipes[2]) {
    for (;;) {
        char *end;
        while (!(end = memmem(from->data, from->bytes, "\r\n", 2)))
            if (more(from) < 0)
                return -1;
        int64_t bytes = strtoll(from->data, NULL, 16);
        /* Each has a line before it and an end of line behind it; so has the last, which is empty. */
        if (bytes < 0 || pass(from, to, end + 2 - from->data + bytes + 2, pipes) < 0)
            return -1;
        if (bytes == 0)
            return 0;
    }
}

static int connected(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(server_port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* One request and its answer; fails once there can be no other one. */
static int exchange(struct side *client, struct side *server, int pipes[2]) {
    size_t length = head(client);
    if (!length)
        return -1;
    struct timespec came, left = pause_time;
    clock_gettime(CLOCK_MONOTONIC, &came);
    while (nanosleep(&left, &left) < 0)
        ;
    char method[16], target[1536], range[64], text[64], line[2048];
    client->data[length - 1] = 0;
    if (sscanf(client->data, "%15s %1535s", method, target) != 2)
        return -1;
    client->data[length - 1] = '\n';
    header(client->data, length, "range", range, sizeof range);
    if (send_all(server->fd, client->data, length) < 0)
        return -1;
    drop(client, length);

    length = head(server);
    if (!length)
        return -1;
    int status = atoi(server->data + strcspn(server->data, " \r"));
    header(server->data, length, "transfer-encoding", text, sizeof text);
    int in_chunks = !strcasecmp(text, "chunked");
    header(server->data, length, "content-length", text, sizeof text);
    int64_t bytes = text[0] == '-' ? -1 : strtoll(text, NULL, 10);
    int is_empty = !strcmp(method, "HEAD") || status == 204 || status == 304;
    if (is_empty)
        bytes = 0;
    int written = snprintf(line, sizeof line, "%.4f %s %s %s %d %lld\n", came.tv_sec + came.tv_nsec / 1e9, method,
                           target, range, status, (long long)bytes);
    if (write(log_file, line, written) < 0)
        die("log");
    if (send_all(client->fd, server->data, length) < 0)
        return -1;
    drop(server, length);
    if (is_empty)
        return 0;
    if (in_chunks)
        return pass_chunks(server, client->fd, pipes);
    return pass(server, client->fd, bytes, pipes) < 0 || bytes < 0 ? -1 : 0;
}

static void *serve(void *argument) {
    struct side *client = calloc(1, sizeof *client), *server = calloc(1, sizeof *server);
    int one = 1, pipes[2];
    if (!client || !server || pipe2(pipes, O_CLOEXEC) < 0)
        die("no room for a connection");
    (void)fcntl(pipes[1], F_SETPIPE_SZ, PIPE_BYTES);
    client->fd = (int)(intptr_t)argument;
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    server->fd = connected();
    if (server->fd >= 0) {
        while (exchange(client, server, pipes) == 0)
            ;
        close(server->fd);
    }
    close(client->fd);
    close(pipes[0]);
    close(pipes[1]);
    free(client);
    free(server);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "delay SERVER_PORT MILLISECONDS LOG\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    server_port = atoi(argv[1]);
    long milliseconds = atol(argv[2]);
    pause_time.tv_sec = milliseconds / 1000;
    pause_time.tv_nsec = milliseconds % 1000 * 1000000;
    log_file = open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_file < 0)
        die(argv[3]);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 1024) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        die("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (;;) {
        pthread_t thread;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (pthread_create(&thread, &attributes, serve, (void *)(intptr_t)fd))
            close(fd);
    }
}
