/* Lists a folder: names in the order of the paths below it, and the size and times of each regular file. */
#include "native.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Kinds of names. Python looks again at all others than files. */
enum { IS_FILE, IS_FOLDER, IS_OTHER };
enum { LISTED, FOR_PYTHON };

/* `struct folder` of cafcat/native/folder.py. */
struct folder {
    /* Memory of the caller. */
    char *read;          /* names as they are read */
    char *paths;         /* names in order, each after the prefix and before a NUL */
    int64_t text_size;   /* size of `read`, and of `paths` */
    const char **order;  /* start of each name in `read` */
    int64_t *ends;       /* position in `paths` after each NUL */
    int64_t *sizes, *modified, *changed;
    uint8_t *kinds;
    int64_t capacity;    /* number of elements of each column */
    const char *prefix;  /* path of the folder in the catalog, with a slash at its end */
    int64_t prefix_size;
    int64_t most_path_size;
    /* Results. */
    int64_t count;
    int64_t needed_text_size;
    int64_t needed_capacity;
};

static int by_name(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static int is_usual(const char *name)
{
    const uint8_t *at = (const uint8_t *)name, *const end = at + strlen(name);
    while (at < end) {
        const size_t size = *at < 128 ? 1 : cafcat_utf8_size(at, end);
        if (!size)
            return 0;
        at += size;
    }
    return 1;
}

static int is_folder(int folder, const struct dirent *entry)
{
    struct stat status;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

/* Reads all names into `read`, those of folders with a slash at the end. Counts what does not fit. Returns LISTED,
 * FOR_PYTHON if a name is not UTF-8 or makes a path that is too long, or a negative error number. */
static int read_names(struct folder *found, int folder, DIR *entries)
{
    int64_t used = 0, count = 0, paths_size = 0;
    for (;;) {
        errno = 0;
        const struct dirent *const entry = readdir(entries);
        if (entry == NULL)
            break;
        const char *const name = entry->d_name;
        if (name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0)))
            continue;
        const int slash = is_folder(folder, entry);
        const int64_t size = (int64_t)strlen(name) + slash + 1;
        if (!is_usual(name) || found->prefix_size + size - 1 > found->most_path_size)
            return FOR_PYTHON;
        if (used + size <= found->text_size && count < found->capacity) {
            char *const at = found->read + used;
            memcpy(at, name, (size_t)size - 1);
            if (slash)
                at[size - 2] = '/';
            at[size - 1] = 0;
            found->order[count] = at;
        }
        used += size;
        count++;
        paths_size += found->prefix_size + size;
    }
    if (errno)
        return -errno;
    found->count = found->needed_capacity = count;
    found->needed_text_size = used > paths_size ? used : paths_size;
    return LISTED;
}

/* True if the time is between the years 1678 and 2262, so that its nanoseconds fit. */
static int fits(struct timespec time)
{
    return time.tv_sec > -9200000000 && time.tv_sec < 9200000000;
}

static uint8_t look_at(struct folder *found, int folder, const char *name, int64_t n)
{
    struct stat status;
    if (name[strlen(name) - 1] == '/')
        return IS_FOLDER;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)
        || !fits(status.st_mtim) || !fits(status.st_ctim))
        return IS_OTHER;
    found->sizes[n] = status.st_size;
    found->modified[n] = cafcat_nanoseconds(status.st_mtim);
    found->changed[n] = cafcat_nanoseconds(status.st_ctim);
    return IS_FILE;
}

/* Sorts the names, and drops those that come again: a folder that changes meanwhile can list a name twice. */
static void sort_names(struct folder *found)
{
    const char **const order = found->order;
    int64_t count = 0;
    qsort(order, (size_t)found->count, sizeof *order, by_name);
    for (int64_t n = 0; n < found->count; n++)
        if (!count || strcmp(order[count - 1], order[n]) != 0)
            order[count++] = order[n];
    found->count = count;
}

/* Lists the folder behind a descriptor, whose position changes. Returns LISTED, FOR_PYTHON, or a negative error number. If
 * the needed sizes are larger than the given ones, there is no result: the caller provides them, and calls again. */
EXPORTED int cafcat_list_folder(int folder, struct folder *found)
{
    const int copy = dup(folder);
    if (copy < 0)
        return -errno;
    DIR *const entries = fdopendir(copy);
    if (entries == NULL) {
        const int error = errno;
        close(copy);
        return -error;
    }
    rewinddir(entries);
    const int outcome = read_names(found, folder, entries);
    closedir(entries);
    if (outcome != LISTED || found->needed_text_size > found->text_size || found->needed_capacity > found->capacity)
        return outcome;
    sort_names(found);
    int64_t end = 0;
    for (int64_t n = 0; n < found->count; n++) {
        const char *const name = found->order[n];
        const size_t size = strlen(name) + 1;
        found->sizes[n] = found->modified[n] = found->changed[n] = 0;
        found->kinds[n] = look_at(found, folder, name, n);
        memcpy(found->paths + end, found->prefix, (size_t)found->prefix_size);
        memcpy(found->paths + end + found->prefix_size, name, size);
        end += found->prefix_size + (int64_t)size;
        found->ends[n] = end;
    }
    return LISTED;
}
