/* CRC-64/NVME, by the multiplication without carries that processors have for such checksums.
 *
 * A run of bytes is a polynomial over two elements, and its checksum the remainder by another polynomial. Two words stand
 * for a polynomial with the same remainder as all bytes so far: they are multiplied with powers of x, which moves them
 * behind the next bytes, and added to these. Several such pairs (LANES) are computed at the same time, because each
 * multiplication takes some cycles. At the end, a table computes the remainder of the last pair and of the bytes that are left.
 *
 * Bits are reversed: the lowest bit of a word has the highest power. The product of two words is therefore one power of x
 * too high, and the constants are one power lower than the distance.
 */
#include "native.h"

#include <string.h>

#define POLYNOMIAL 0x9a6c9329ac4bc9b5u /* bits reversed */
#define LANES 8
#define PAIR_BYTES 16

#if defined(__x86_64__)
#include <immintrin.h>
#define HARDWARE __attribute__((target("pclmul,sse2")))
#define WIDE __attribute__((target("avx512f,vpclmulqdq")))
#define WIDE_LANES 4 /* of four pairs each */
#define WIDE_BYTES (WIDE_LANES * 4 * PAIR_BYTES)
typedef __m128i pair;
#define PAIR(low, high) _mm_set_epi64x((int64_t)(high), (int64_t)(low))
#define ADD(one, other) _mm_xor_si128((one), (other))
#define LOW_PRODUCT(one, other) _mm_clmulepi64_si128((one), (other), 0x00)
#define HIGH_PRODUCT(one, other) _mm_clmulepi64_si128((one), (other), 0x11)
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#define HARDWARE __attribute__((target("+crypto")))
typedef uint64x2_t pair;
#define PAIR(low, high) vcombine_u64(vcreate_u64(low), vcreate_u64(high))
#define ADD(one, other) veorq_u64((one), (other))
#define LOW_PRODUCT(one, other) \
    vreinterpretq_u64_p128(vmull_p64((poly64_t)vgetq_lane_u64((one), 0), (poly64_t)vgetq_lane_u64((other), 0)))
#define HIGH_PRODUCT(one, other) \
    vreinterpretq_u64_p128(vmull_p64((poly64_t)vgetq_lane_u64((one), 1), (poly64_t)vgetq_lane_u64((other), 1)))
#endif

static uint64_t bytewise[256];
static uint64_t behind_one[2], behind_all[2]; /* constants for a distance of one pair, and of all lanes */
static int has_hardware;
#ifdef WIDE
static uint64_t behind_wide[2];
static int has_wide;
#endif

static uint64_t by_table(uint64_t crc, const uint8_t *data, size_t size)
{
    while (size--)
        crc = crc >> 8 ^ bytewise[(crc ^ *data++) & 255];
    return crc;
}

#ifdef HARDWARE
HARDWARE static pair pair_at(const uint8_t *data)
{
    uint64_t words[2];
    memcpy(words, data, sizeof words);
    return PAIR(words[0], words[1]);
}

/* Returns a pair that has moved behind other bytes, with the bytes at its new place. */
HARDWARE static pair moved(pair from, pair constants, pair bytes)
{
    return ADD(ADD(LOW_PRODUCT(from, constants), HIGH_PRODUCT(from, constants)), bytes);
}

HARDWARE static uint64_t by_hardware(uint64_t crc, const uint8_t *data, size_t size)
{
    const pair all = PAIR(behind_all[0], behind_all[1]), one = PAIR(behind_one[0], behind_one[1]);
    pair lanes[LANES];
    uint8_t last[PAIR_BYTES];
    for (int n = 0; n < LANES; n++)
        lanes[n] = pair_at(data + n * PAIR_BYTES);
    lanes[0] = ADD(lanes[0], PAIR(crc, 0));
    data += LANES * PAIR_BYTES;
    size -= LANES * PAIR_BYTES;
    for (; size >= LANES * PAIR_BYTES; data += LANES * PAIR_BYTES, size -= LANES * PAIR_BYTES)
        for (int n = 0; n < LANES; n++)
            lanes[n] = moved(lanes[n], all, pair_at(data + n * PAIR_BYTES));
    for (int n = 1; n < LANES; n++)
        lanes[n] = moved(lanes[n - 1], one, lanes[n]);
    for (; size >= PAIR_BYTES; data += PAIR_BYTES, size -= PAIR_BYTES)
        lanes[LANES - 1] = moved(lanes[LANES - 1], one, pair_at(data));
    memcpy(last, &lanes[LANES - 1], sizeof last);
    return by_table(by_table(0, last, sizeof last), data, size);
}
#endif

#ifdef WIDE
/* As `by_hardware`, with instructions that multiply four pairs at once. At the end, the pairs are bytes with the same
 * remainder as all bytes before them. */
WIDE static uint64_t by_wide(uint64_t crc, const uint8_t *data, size_t size)
{
    const __m512i all = _mm512_broadcast_i32x4(PAIR(behind_wide[0], behind_wide[1]));
    __m512i lanes[WIDE_LANES];
    uint8_t last[WIDE_BYTES];
    for (int n = 0; n < WIDE_LANES; n++)
        lanes[n] = _mm512_loadu_si512(data + n * sizeof *lanes);
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(PAIR(crc, 0)));
    data += WIDE_BYTES;
    size -= WIDE_BYTES;
    for (; size >= WIDE_BYTES; data += WIDE_BYTES, size -= WIDE_BYTES)
        for (int n = 0; n < WIDE_LANES; n++) {
            const __m512i bytes = _mm512_loadu_si512(data + n * sizeof *lanes);
            const __m512i low = _mm512_clmulepi64_epi128(lanes[n], all, 0x00);
            const __m512i high = _mm512_clmulepi64_epi128(lanes[n], all, 0x11);
            lanes[n] = _mm512_xor_si512(_mm512_xor_si512(low, high), bytes);
        }
    memcpy(last, lanes, sizeof last);
    return by_hardware(0, last, sizeof last);
}
#endif

/* Returns x to a power, as a remainder by the polynomial. */
static uint64_t power_of_x(int power)
{
    uint64_t remainder = (uint64_t)1 << 63;
    while (power--)
        remainder = remainder >> 1 ^ (POLYNOMIAL & -(remainder & 1));
    return remainder;
}

/* Fills table and constants when the library is loaded, before any function can be called. */
__attribute__((constructor)) static void begin(void)
{
    for (uint64_t byte = 0; byte < 256; byte++) {
        uint64_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
        bytewise[byte] = crc;
    }
    for (int word = 0; word < 2; word++) { /* the first word of a pair has 64 powers more than the second one */
        behind_one[word] = power_of_x(8 * PAIR_BYTES + 64 * (1 - word) - 1);
        behind_all[word] = power_of_x(8 * PAIR_BYTES * LANES + 64 * (1 - word) - 1);
#ifdef WIDE
        behind_wide[word] = power_of_x(8 * WIDE_BYTES + 64 * (1 - word) - 1);
#endif
    }
    has_hardware = cafcat_instructions() & HAS_PRODUCT;
#ifdef WIDE
    has_wide = has_hardware && cafcat_instructions() & HAS_WIDE_PRODUCT;
#endif
}

/* Returns 1 if the processor has the multiplication. Without it, awscrt is faster. */
EXPORTED int cafcat_has_fast_crc64nvme(void)
{
    return has_hardware != 0;
}

/* Returns the CRC-64/NVME of bytes. `crc` is that of the bytes before them, 0 at the start. */
EXPORTED uint64_t cafcat_crc64nvme(const uint8_t *data, size_t size, uint64_t crc)
{
#ifdef WIDE
    if (has_wide && size >= 2 * WIDE_BYTES) {
        const size_t most = size - size % WIDE_BYTES;
        crc = ~by_wide(~crc, data, most);
        data += most;
        size -= most;
    }
#endif
#ifdef HARDWARE
    if (has_hardware && size >= LANES * PAIR_BYTES)
        return ~by_hardware(~crc, data, size);
#endif
    return ~by_table(~crc, data, size);
}
