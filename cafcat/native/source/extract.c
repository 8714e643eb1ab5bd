/* Writes small files into a folder: the content from the bytes of their chunk, and the name of each file later.
 *
 * cafcat/support/new_file.py has the same in Python, also for file systems without files that have no name. */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OWN_NAME_SIZE 32

/* `struct contents` of cafcat/native/extract.py: files of one folder, and the bytes of their chunk. */
struct contents {
    const uint8_t *data;
    int64_t data_size, data_start; /* the bytes are those of the chunk from `data_start` on */
    const int64_t *starts, *ends, *checksums, *modified;
    int64_t count;
    int32_t folder, mode;
    int32_t *descriptors; /* result: a descriptor of each file that was written */
};

/* `struct waiting` of cafcat/native/extract.py: files of one folder that have no names yet. */
struct waiting {
    const char *names; /* each with a NUL byte at its end */
    int32_t *descriptors;
    int64_t count;
    int64_t named;   /* how many of them have names */
    int64_t name_at; /* position of the next name */
    int32_t folder;
};

static int write_all(int file, const uint8_t *data, int64_t size)
{
    while (size > 0) {
        const int64_t count = write(file, data, (size_t)size);
        if (count < 0 && errno != EINTR)
            return 0;
        data += count > 0 ? count : 0;
        size -= count > 0 ? count : 0;
    }
    return 1;
}

/* Returns the descriptor of a new file without a name; -1 if the file is damaged or cannot be written. */
static int32_t new_file(const struct contents *of, int64_t n)
{
    const int64_t start = of->starts[n] - of->data_start, size = of->ends[n] - of->starts[n];
    if (size < 0 || start < 0 || start > of->data_size || size > of->data_size - start
        || (int64_t)cafcat_crc32c(of->data + start, (size_t)size, 0) != of->checksums[n])
        return -1;
    const int file = openat(of->folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, of->mode);
    if (file < 0)
        return -1;
    /* The system refuses a negative fraction of a second: Python writes these files of the time before 1970. */
    const struct timespec time = {of->modified[n] / 1000000000, of->modified[n] % 1000000000};
    const struct timespec times[2] = {time, time};
    if (write_all(file, of->data + start, size) && futimens(file, times) == 0)
        return file;
    close(file);
    return -1;
}

/* Writes files until one is damaged or cannot be written. Returns the number of written files. */
EXPORTED int64_t cafcat_write_files(const struct contents *of)
{
    int64_t n = 0;
    while (n < of->count && (of->descriptors[n] = new_file(of, n)) >= 0)
        n++;
    return n;
}

/* Gives files their names until a name is taken or cannot be given. Closes the files that have their names. */
EXPORTED void cafcat_name_files(struct waiting *of)
{
    char own[OWN_NAME_SIZE];
    while (of->named < of->count) {
        const char *const name = of->names + of->name_at;
        const int32_t file = of->descriptors[of->named];
        /* Only some processes may link a file by its descriptor alone, which takes less time. */
        if (linkat(file, "", of->folder, name, AT_EMPTY_PATH) != 0) {
            snprintf(own, sizeof own, "/proc/self/fd/%d", (int)file);
            if (errno != ENOENT || linkat(AT_FDCWD, own, of->folder, name, AT_SYMLINK_FOLLOW) != 0)
                return;
        }
        of->descriptors[of->named++] = -1;
        of->name_at += (int64_t)__builtin_strlen(name) + 1;
        close(file);
    }
}
