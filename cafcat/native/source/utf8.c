#include "native.h"

/* Returns the number of bytes of the character at `at`, before `end`, if it is valid UTF-8 (RFC 3629), else 0. */
size_t cafcat_utf8_size(const uint8_t *at, const uint8_t *end)
{
    const uint8_t first = *at;
    if (first < 0x80)
        return 1;
    const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || (size_t)(end - at) < size)
        return 0;
    for (size_t n = 1; n < size; n++)
        if ((at[n] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) || (first == 0xf0 && at[1] < 0x90)
        || (first == 0xf4 && at[1] > 0x8f))
        return 0;
    return size;
}
