/* Functions that Python calls through ctypes. They use no header of Python: one library serves every version.
 *
 * The Python files of cafcat/native allocate the memory, and pass its addresses and sizes. No function keeps such an address
 * after it returns. What a function leaves to its caller: a row of libpq that the caller frees (copy.c), and descriptors of new
 * files that the caller closes (extract.c).
 */
#ifndef CAFCAT_NATIVE_H
#define CAFCAT_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "these functions read and write numbers of processors whose first byte is the lowest one"
#endif

/* Changes with every change of a function or structure. cafcat/native/library.py has the same number. */
#define CAFCAT_NATIVE_VERSION 13

#define EXPORTED __attribute__((visibility("default")))

/* Instructions for checksums: a step of CRC-32C, a multiplication without carries, and one of 512 bits with registers for
 * it. */
enum { HAS_CRC32C = 1, HAS_PRODUCT = 2, HAS_WIDE_PRODUCT = 4 };

int cafcat_instructions(void);
uint32_t cafcat_crc32c(const uint8_t *data, size_t size, uint32_t crc);
size_t cafcat_utf8_size(const uint8_t *at, const uint8_t *end);

/* Big-endian numbers, as in the binary format of COPY. */
static inline int64_t cafcat_int64_at(const uint8_t *at)
{
    uint64_t number;
    __builtin_memcpy(&number, at, sizeof number);
    return (int64_t)__builtin_bswap64(number);
}

static inline int32_t cafcat_int32_at(const uint8_t *at)
{
    uint32_t number;
    __builtin_memcpy(&number, at, sizeof number);
    return (int32_t)__builtin_bswap32(number);
}

/* A row of COPY_ROWS (cafcat/catalog/chunks/rows.py) in the binary format of COPY: a number of fields, then the length and
 * the bytes of each field. It has five numbers, the path, and content_bytes and decoding, which are NULL in most rows. */
#define ROW_HEAD_BYTES 66 /* the number of fields, five fields of 8 bytes, and the length of the path */
#define ROW_TAIL_BYTES 8  /* two lengths of -1 */

static inline int64_t cafcat_row_start(const uint8_t *row) { return cafcat_int64_at(row + 6); }
static inline int64_t cafcat_row_end(const uint8_t *row) { return cafcat_int64_at(row + 18); }
static inline int64_t cafcat_row_checksum(const uint8_t *row) { return cafcat_int64_at(row + 30); }
static inline int64_t cafcat_row_time(const uint8_t *row) { return cafcat_int64_at(row + 42); }

/* Returns the size of the path, or -1 if less than the whole row is in the first `size` bytes. */
static inline int64_t cafcat_row_path_bytes(const uint8_t *row, int64_t size)
{
    if (size < ROW_HEAD_BYTES + ROW_TAIL_BYTES)
        return -1;
    const int64_t path_bytes = cafcat_int32_at(row + 62);
    return path_bytes > size - ROW_HEAD_BYTES - ROW_TAIL_BYTES ? -1 : path_bytes;
}

/* Returns 1 if content_bytes and decoding of a whole row are NULL. */
static inline int cafcat_row_is_not_decoded(const uint8_t *row, int64_t path_bytes)
{
    return cafcat_int64_at(row + ROW_HEAD_BYTES + path_bytes) == -1;
}

/* Returns a time of a file in nanoseconds since 1970. */
static inline int64_t cafcat_nanoseconds(struct timespec time)
{
    return (int64_t)((uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec);
}

/* Returns a time as rows have it, in microseconds since 2000. `nanoseconds` are since 1970. */
static inline int64_t cafcat_time_of_row(int64_t nanoseconds)
{
    return nanoseconds / 1000 - (nanoseconds % 1000 < 0) - 946684800000000;
}

#endif
