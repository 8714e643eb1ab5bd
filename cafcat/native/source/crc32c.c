/* CRC-32C (Castagnoli, RFC 3720), by instructions of the processor where it has them.
 *
 * The instruction takes eight bytes, and its result is ready after three cycles. So three runs of bytes are computed
 * at the same time. A table then moves the result of the first and second run behind the bytes of the others.
 */
#include "native.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#if defined(__clang__)
#define HARDWARE __attribute__((target("sse4.2,crc32")))
#else
#define HARDWARE __attribute__((target("sse4.2")))
#endif
#define STEP8(crc, word) _mm_crc32_u64((crc), (word))
#define STEP1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#define HARDWARE __attribute__((target("+crc")))
#define STEP8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define STEP1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#endif

#define POLYNOMIAL 0x82f63b78u /* bits reversed */
#define LANE_BYTES 256

static uint32_t bytewise[8][256];
static uint32_t behind_one_lane[4][256];
static uint32_t behind_two_lanes[4][256];
static int has_hardware;

static uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static uint32_t by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        const uint64_t word = word_at(data) ^ crc; /* both processors are little-endian */
        crc = bytewise[7][word & 255] ^ bytewise[6][word >> 8 & 255] ^ bytewise[5][word >> 16 & 255]
            ^ bytewise[4][word >> 24 & 255] ^ bytewise[3][word >> 32 & 255] ^ bytewise[2][word >> 40 & 255]
            ^ bytewise[1][word >> 48 & 255] ^ bytewise[0][word >> 56];
    }
    while (size--)
        crc = crc >> 8 ^ bytewise[0][(crc ^ *data++) & 255];
    return crc;
}

#ifdef HARDWARE
static uint32_t moved(const uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

HARDWARE static uint32_t by_hardware(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 3 * LANE_BYTES; data += 3 * LANE_BYTES, size -= 3 * LANE_BYTES) {
        uint64_t first = crc, second = 0, third = 0;
        for (size_t n = 0; n < LANE_BYTES; n += 8) {
            first = STEP8(first, word_at(data + n));
            second = STEP8(second, word_at(data + LANE_BYTES + n));
            third = STEP8(third, word_at(data + 2 * LANE_BYTES + n));
        }
        crc = moved(behind_two_lanes, (uint32_t)first) ^ moved(behind_one_lane, (uint32_t)second) ^ (uint32_t)third;
    }
    uint64_t rest = crc;
    for (; size >= 8; data += 8, size -= 8)
        rest = STEP8(rest, word_at(data));
    while (size--)
        rest = STEP1(rest, *data++);
    return (uint32_t)rest;
}
#endif

/* Fills the tables when the library is loaded, before any function can be called. */
__attribute__((constructor)) static void begin(void)
{
    static const uint8_t zeros[LANE_BYTES];
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
        bytewise[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t byte = 0; byte < 256; byte++)
            bytewise[table][byte] = bytewise[table - 1][byte] >> 8 ^ bytewise[0][bytewise[table - 1][byte] & 255];
    for (int position = 0; position < 4; position++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            const uint32_t one = by_table(byte << 8 * position, zeros, LANE_BYTES);
            behind_one_lane[position][byte] = one;
            behind_two_lanes[position][byte] = by_table(one, zeros, LANE_BYTES);
        }
    has_hardware = cafcat_instructions() & HAS_CRC32C;
}

/* Returns the CRC-32C of bytes. `crc` is that of the bytes before them, 0 at the start. */
EXPORTED uint32_t cafcat_crc32c(const uint8_t *data, size_t size, uint32_t crc)
{
#ifdef HARDWARE
    if (has_hardware)
        return ~by_hardware(~crc, data, size);
#endif
    return ~by_table(~crc, data, size);
}

/* The same by tables only, for tests of a processor that has the instructions. */
EXPORTED uint32_t cafcat_crc32c_by_table(const uint8_t *data, size_t size, uint32_t crc)
{
    return ~by_table(~crc, data, size);
}

EXPORTED int cafcat_native_version(void)
{
    return CAFCAT_NATIVE_VERSION;
}
