/* Functions that Python calls through ctypes. They use no header of Python: one library serves every version.
 *
 * Every pointer and size comes from the Python files of cafcat/native, which have allocated the memory. No function keeps
 * memory or a pointer after it returns, or reads outside of the memory that it was given.
 */
#ifndef CAFCAT_NATIVE_H
#define CAFCAT_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* Changes with every change of a function or structure. cafcat/native/library.py has the same number. */
#define CAFCAT_NATIVE_VERSION 4

#define EXPORTED __attribute__((visibility("default")))

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

#endif
