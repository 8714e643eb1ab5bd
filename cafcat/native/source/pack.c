/* Reads small files, one after the other, and makes what their chunk needs: bytes, text of the index, rows of COPY. Before that,
 * threads can read files into the page cache.
 *
 * cafcat/formats/index_text.py has the format of the text, cafcat/catalog/files/mapping.py that of the rows,
 * cafcat/sources/local/files.py the rules for a changed file. */
#define _GNU_SOURCE /* for RUSAGE_THREAD */
#include "native.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCATOR_SIZE 4096
#define MOST_TEXT 160 /* text of an entry without its name */
#define MOST_ROW 128  /* row without its path */
#define MOST_THREADS 16
#define READ_SIZE 32768
#ifdef CLOCK_MONOTONIC_COARSE
#define CLOCK CLOCK_MONOTONIC_COARSE
#else
#define CLOCK CLOCK_MONOTONIC
#endif
#ifdef RUSAGE_THREAD
#define RUSAGE_CALLER RUSAGE_THREAD
#else
#define RUSAGE_CALLER RUSAGE_SELF
#endif
#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)

enum { ALL_PACKED, NO_ROOM, IS_FULL, IS_UNUSUAL };

/* `struct packing` of cafcat/native/pack.py. */
struct packing {
    /* The files: columns of `struct folder`, without the names of folders. */
    const char *paths;
    const int64_t *ends, *sizes, *modified, *changed;
    int64_t begin, end;        /* which of the files */
    const char *base;          /* folder of all files, with a slash at its end */
    int64_t base_size;
    int64_t skip;              /* bytes of a path that are not part of the name below that folder */
    /* The chunk. */
    int64_t chunk_id, source_id;
    int32_t has_source, has_entries;
    int64_t position;          /* size of the data so far */
    int64_t index_size;        /* size of the index if it ended now */
    int64_t most_index_size, most_size;
    int64_t most_file_size;
    int64_t most_milliseconds; /* of a call: Python handles signals between calls */
    /* Memory of the caller. */
    uint8_t *data, *text, *rows;
    int64_t data_size, text_size, rows_size;
    /* Results: numbers of bytes in each part of the memory, and why the packing ended at the file `begin`. */
    int64_t data_used, text_used, rows_used;
    int32_t reason;
    int64_t waits;             /* how many times the files made a thread wait, as for a disk or a server */
};

/* Returns how many times this thread has waited so far. Unlike a time, this does not depend on other programs. */
static int64_t waits_so_far(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_CALLER, &usage) == 0 ? usage.ru_nvcsw : 0;
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint8_t *put_number(uint8_t *at, int64_t number)
{
    uint8_t digits[20];
    int count = 0;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    if (number < 0)
        *at++ = '-';
    do
        digits[count++] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

static uint8_t *put_text(uint8_t *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define PUT(at, literal) put_text((at), (literal), sizeof(literal) - 1)

static uint8_t *put_int32(uint8_t *at, int32_t number)
{
    const uint32_t swapped = __builtin_bswap32((uint32_t)number);
    memcpy(at, &swapped, sizeof swapped);
    return at + sizeof swapped;
}

static uint8_t *put_field(uint8_t *at, int64_t number)
{
    const uint64_t swapped = __builtin_bswap64((uint64_t)number);
    memcpy(put_int32(at, 8), &swapped, sizeof swapped);
    return at + 12;
}

/* Returns 1 if a JSON string has the bytes of the path as they are. */
static int needs_no_escape(const uint8_t *path, int64_t size)
{
    for (int64_t n = 0; n < size; n++)
        if (path[n] < 32 || path[n] == '"' || path[n] == '\\')
            return 0;
    return 1;
}

/* Returns the number of bytes that were read, at most `size`; -1 after an error. */
static int64_t read_once(int file, uint8_t *data, int64_t size)
{
    int64_t count;
    do
        count = read(file, data, (size_t)size);
    while (count < 0 && errno == EINTR);
    return count;
}

/* Reads a file that has not changed since it was listed. Returns 0 in all other cases. */
static int read_file(const struct packing *to, int64_t n, int folder, const char *name, uint8_t *data)
{
    struct stat status;
    int file;
    do
        file = openat(folder, name, READ_FLAGS);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return 0;
    const int64_t size = read_once(file, data, to->sizes[n] + 1); /* one byte more detects growth */
    const int is_known = size == to->sizes[n] && fstat(file, &status) == 0;
    close(file);
    return is_known && status.st_size == size && S_ISREG(status.st_mode)
        && cafcat_nanoseconds(status.st_mtim) == to->modified[n] && cafcat_nanoseconds(status.st_ctim) == to->changed[n];
}

static uint8_t *put_entry(uint8_t *at, const struct packing *to, int64_t n, const char *path, int64_t path_size,
                          int64_t start, uint32_t checksum)
{
    if (to->has_entries)
        *at++ = ',';
    *at++ = '"';
    at = put_text(at, path, (size_t)path_size);
    at = put_number(PUT(at, "\":{\"start_byte\":"), start);
    at = put_number(PUT(at, ",\"end_byte\":"), start + to->sizes[n]);
    at = put_number(PUT(at, ",\"crc32c\":"), checksum);
    at = put_number(PUT(at, ",\"modified_ns\":"), to->modified[n]);
    *at++ = '}';
    return at;
}

static uint8_t *put_row(uint8_t *at, const struct packing *to, int64_t n, const char *path, int64_t path_size,
                        int64_t start, uint32_t checksum)
{
    *at++ = 0;
    *at++ = 10; /* fields */
    at = put_field(at, to->chunk_id);
    at = put_field(at, start);
    at = put_field(at, start + to->sizes[n]);
    at = put_field(at, checksum);
    at = put_field(at, cafcat_time_of_row(to->modified[n]));
    at = put_text(put_int32(at, (int32_t)path_size), path, (size_t)path_size);
    for (int field = 0; field < 3; field++)
        at = put_int32(at, -1); /* source_etag, content_bytes and decoding are NULL */
    return to->has_source ? put_int32(put_int32(at, 4), (int32_t)to->source_id) : put_int32(at, -1);
}

static const char *path_of(const struct packing *to, int64_t n, int64_t *size)
{
    const int64_t begin = n ? to->ends[n - 1] : 0;
    *size = to->ends[n] - begin - 1;
    return to->paths + begin;
}

/* The folder that is open. */
struct open_folder {
    int file;         /* descriptor; -1 if none is open */
    const char *path; /* its path, which is a part of the paths of the files */
    int64_t size;     /* size of its path, with the slash */
};

/* Opens the file or folder that the first `size` bytes of a path name. Returns -1 after an error. A folder may have been replaced by a link out of
 * the source. Files there have other times than the listing, and are not packed. */
static int open_path(const struct packing *to, const char *path, int64_t size, int flags)
{
    char locator[LOCATOR_SIZE];
    if (size < to->skip || to->base_size + size - to->skip >= LOCATOR_SIZE)
        return -1;
    uint8_t *const end = put_text(put_text((uint8_t *)locator, to->base, (size_t)to->base_size), path + to->skip,
                                  (size_t)(size - to->skip));
    *end = 0;
    return open(locator, flags);
}

/* Opens the folder of a file, unless it is open. Returns 0 after an error. */
static int enter_folder_of(const struct packing *to, int64_t n, struct open_folder *folder)
{
    int64_t size;
    const char *const path = path_of(to, n, &size);
    while (size > 0 && path[size - 1] != '/')
        size--;
    if (folder->file >= 0 && size == folder->size && memcmp(path, folder->path, (size_t)size) == 0)
        return 1;
    if (folder->file >= 0)
        close(folder->file);
    folder->path = path;
    folder->size = size;
    folder->file = open_path(to, path, size, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder->file >= 0;
}

/* Packs a file. Opens its folder first, unless the folder is open. */
static int pack_file(struct packing *to, int64_t n, struct open_folder *folder)
{
    int64_t path_size;
    const char *const path = path_of(to, n, &path_size);
    const int64_t size = to->sizes[n], start = to->position + to->data_used;
    if (size > to->most_file_size || !needs_no_escape((const uint8_t *)path, path_size))
        return IS_UNUSUAL;
    if (size >= to->data_size - to->data_used || path_size + MOST_TEXT > to->text_size - to->text_used
        || path_size + MOST_ROW > to->rows_size - to->rows_used)
        return NO_ROOM;
    if (!enter_folder_of(to, n, folder) || !read_file(to, n, folder->file, path + folder->size, to->data + to->data_used))
        return IS_UNUSUAL;
    const uint32_t checksum = cafcat_crc32c(to->data + to->data_used, (size_t)size, 0);
    uint8_t *const text = to->text + to->text_used;
    const int64_t text_size = put_entry(text, to, n, path, path_size, start, checksum) - text;
    const int64_t index_size = to->index_size + to->text_used + text_size;
    if (index_size > to->most_index_size || start + size + index_size > to->most_size)
        return IS_FULL;
    to->rows_used = put_row(to->rows + to->rows_used, to, n, path, path_size, start, checksum) - to->rows;
    to->text_used += text_size;
    to->data_used += size;
    to->has_entries = 1;
    return ALL_PACKED;
}

/* Packs files from `begin` on, until one does not fit or is not usual, or the time is over. Moves `begin`
 * behind the files that were packed. */
EXPORTED void cafcat_pack(struct packing *to)
{
    const int64_t waits = waits_so_far(), end_at = milliseconds() + to->most_milliseconds;
    struct open_folder folder = {.file = -1};
    to->data_used = to->text_used = to->rows_used = 0;
    to->reason = ALL_PACKED;
    while (to->reason == ALL_PACKED && to->begin < to->end) {
        to->reason = pack_file(to, to->begin, &folder);
        to->begin += to->reason == ALL_PACKED;
        if (milliseconds() >= end_at)
            break;
    }
    if (folder.file >= 0)
        close(folder.file);
    to->waits = waits_so_far() - waits;
}

/* Files that several threads read. */
struct prefetching {
    const struct packing *to;
    int64_t next;              /* the next file */
    int64_t end_at;            /* when no further file is begun */
    int64_t waits;             /* of all threads that have ended */
};

static void *prefetch(void *argument)
{
    struct prefetching *const files = argument;
    const struct packing *const to = files->to;
    const int64_t waits = waits_so_far();
    uint8_t data[READ_SIZE];
    int64_t n, path_size;
    while (milliseconds() < files->end_at && (n = __atomic_fetch_add(&files->next, 1, __ATOMIC_RELAXED)) < to->end) {
        const char *const path = path_of(to, n, &path_size);
        const int file = to->sizes[n] > to->most_file_size ? -1 : open_path(to, path, path_size, READ_FLAGS);
        if (file < 0)
            continue;
        for (int64_t left = to->sizes[n], count = 1; left > 0 && count > 0; left -= count)
            count = read_once(file, data, left < READ_SIZE ? left : READ_SIZE);
        close(file);
    }
    __atomic_fetch_add(&files->waits, waits_so_far() - waits, __ATOMIC_RELAXED);
    return NULL;
}

/* Reads the files from `begin` to `end` in several threads, and discards their bytes. If they were not in
 * memory, `cafcat_pack` then finds them there. Errors are ignored: `cafcat_pack` meets them again. Moves `begin` behind the
 * files that were read when the time was over. */
EXPORTED void cafcat_prefetch(struct packing *to)
{
    pthread_t threads[MOST_THREADS];
    struct prefetching files = {.to = to, .next = to->begin, .end_at = milliseconds() + to->most_milliseconds};
    int started = 0;
    while (started < MOST_THREADS && started + 1 < to->end - to->begin
           && pthread_create(&threads[started], NULL, prefetch, &files) == 0)
        started++;
    prefetch(&files);
    while (started)
        pthread_join(threads[--started], NULL);
    to->begin = files.next < to->end ? files.next : to->end;
    to->waits = files.waits;
}
