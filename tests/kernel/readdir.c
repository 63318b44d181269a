/* Lists a directory the hard way and prints each name once per line.
 *
 *   readdir list DIR   plain
 *   readdir slow DIR   with pauses, so that other processes can change the directory meanwhile
 *   readdir seek DIR   seeks each position of telldir again, forwards and backwards; exit status 1
 *                      if the name at a position has changed
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    long position;
    char *name;
};

static struct dirent *next(DIR *dir)
{
    struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(dir);
        if (!entry && errno) {
            perror("readdir");
            exit(2);
        }
    } while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
    return entry;
}

static int seek_check(DIR *dir, const struct place *place)
{
    seekdir(dir, place->position);
    struct dirent *entry = next(dir);
    if (entry && !strcmp(entry->d_name, place->name))
        return 0;
    fprintf(stderr, "at %ld: %s instead of %s\n", place->position, entry ? entry->d_name : "the end", place->name);
    return 1;
}

static int seek(DIR *dir)
{
    struct place *places = NULL;
    size_t count = 0, room = 0;
    int wrong = 0;
    for (;;) {
        long position = telldir(dir);
        struct dirent *entry = next(dir);
        if (!entry)
            break;
        if (count == room) {
            room = room ? 2 * room : 1024;
            places = realloc(places, room * sizeof *places);
        }
        places[count].position = position;
        places[count++].name = strdup(entry->d_name);
    }
    for (size_t i = 0; i < count; i += 211)
        wrong |= seek_check(dir, &places[i]);
    for (size_t i = count; i > 307; i -= 307)
        wrong |= seek_check(dir, &places[i - 1]);
    rewinddir(dir);
    for (size_t i = 0;; i++) {
        if (i % 997 == 0)
            seekdir(dir, telldir(dir));
        struct dirent *entry = next(dir);
        if (!entry)
            break;
        puts(entry->d_name);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 3 ? opendir(argv[2]) : NULL;
    if (!dir) {
        perror("opendir");
        return 2;
    }
    if (!strcmp(argv[1], "seek"))
        return seek(dir);
    struct dirent *entry;
    for (size_t i = 1; (entry = next(dir)); i++) {
        puts(entry->d_name);
        if (!strcmp(argv[1], "slow") && i % 500 == 0)
            usleep(2000);
    }
    return 0;
}
