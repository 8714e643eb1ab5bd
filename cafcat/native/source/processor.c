/* Finds out which instructions the processor has. The compiler's own function for that is not used: if zig compiles it, it
 * always finds none. */
#include "native.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define WIDE_REGISTERS 0xe6 /* bits of XCR0: the system saves the registers of SSE, AVX and AVX-512 */

/* Returns the sum of the HAS_ constants of native.h. The bits are those of CPUID in Intel's Software Developer's Manual. */
EXPORTED int cafcat_instructions(void)
{
    uint32_t a, b, c, d, saved = 0;
    int found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    found += c >> 20 & 1 ? HAS_CRC32C : 0;
    found += c >> 1 & 1 ? HAS_PRODUCT : 0;
    if (c >> 27 & 1)
        __asm__ volatile("xgetbv" : "=a"(saved) : "c"(0) : "edx");
    if ((saved & WIDE_REGISTERS) == WIDE_REGISTERS && __get_cpuid_count(7, 0, &a, &b, &c, &d))
        found += (b >> 16 & 1) && (c >> 10 & 1) ? HAS_WIDE_PRODUCT : 0;
    return found;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

EXPORTED int cafcat_instructions(void)
{
    const unsigned long found = getauxval(AT_HWCAP);
    return (found & HWCAP_CRC32 ? HAS_CRC32C : 0) + (found & HWCAP_PMULL ? HAS_PRODUCT : 0);
}
#else
EXPORTED int cafcat_instructions(void)
{
    return 0;
}
#endif
