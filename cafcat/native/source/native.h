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
#define CAFCAT_NATIVE_VERSION 3

#define EXPORTED __attribute__((visibility("default")))

uint32_t cafcat_crc32c(const uint8_t *data, size_t size, uint32_t crc);
size_t cafcat_utf8_size(const uint8_t *at, const uint8_t *end);

#endif
