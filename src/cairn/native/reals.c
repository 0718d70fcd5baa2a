/* Sizes from 1e-4 up to 1e10: those that are written without an exponent, and whose digits fit the
   numbers of the machine, so that all of this is exact.

   A decimal of at most 15 digits is the only one of that length near its double. So 15 digits are
   tried first, and their last zeros are dropped. If they do not read back the same, 16 are tried,
   then 17, which always do. Of several that do, the one next to the value is right. */

#include "reals.h"

#include <math.h>
#include <string.h>

typedef unsigned __int128 Wide;

#define HIDDEN_BIT (1ull << 52)

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

uint8_t *put_digits(uint8_t *to, uint64_t value, int least)
{
    uint8_t digits[24], *at = digits + sizeof digits;
    for (; value || least > 0; value /= 10, least--)
        *--at = (uint8_t)('0' + value % 10);
    size_t length = (size_t)(digits + sizeof digits - at);
    memcpy(to, at, length);
    return to + length;
}

static Wide power(int exponent)
{
    static const uint64_t TEN_19 = 10000000000000000000ull;
    Wide found = 1;
    for (; exponent >= 19; exponent -= 19)
        found *= TEN_19;
    for (; exponent > 0; exponent--)
        found *= 10;
    return found;
}

/* The whole number next to value · 10^after that reads back as the value, if there is one. */
static int nearest(double value, int after, uint64_t *found)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    uint64_t digits = (bits & (HIDDEN_BIT - 1)) | HIDDEN_BIT;
    int shift = 1076 - (int)(bits >> 52); /* value = 2 · digits / 2^shift */
    if (digits == HIDDEN_BIT || shift < 1 || shift > 100)
        return 0; /* a power of two: its neighbours are not equally far away */
    Wide scale = power(after), half = (Wide)1 << (shift - 1);
    Wide middle = scale * (2 * digits), low = middle - scale, high = middle + scale;
    *found = (uint64_t)((middle + half) >> shift);
    if (((Wide)*found << shift) == middle + half)
        *found -= *found & 1; /* as far to one as to the other: the even one */
    Wide back = (Wide)*found << shift;
    /* Half-way between two doubles the even one is read. */
    return digits % 2 ? back > low && back < high : back >= low && back <= high;
}

/* `digits` / 10^after, without zeros at its end. */
static uint8_t *put_decimal(uint8_t *to, uint64_t digits, int after)
{
    while (after > 0 && digits % 10 == 0) {
        digits /= 10;
        after--;
    }
    if (!after)
        return put_digits(to, digits, 1);
    uint8_t all[24];
    int count = (int)(put_digits(all, digits, after + 1) - all), before = count - after;
    memcpy(to, all, (size_t)before);
    to[before] = '.';
    memcpy(to + before + 1, all + before, (size_t)after);
    return to + count + 1;
}

uint8_t *put_real(uint8_t *to, double value)
{
    double size = fabs(value);
    if (size != 0 && !(size >= 1e-4 && size < 1e10))
        return NULL;
    if (signbit(value)) /* there is a zero below zero */
        *to++ = '-';
    if (size == 0)
        return *to = '0', to + 1;
    int before = -3; /* digits before the point; below zero: zeros behind it */
    while (before <= 0 ? size * POWERS[-before] >= 1 : size >= POWERS[before])
        before++;
    int after = 15 - before;
    uint64_t digits = (uint64_t)(size * POWERS[after] + 0.5);
    if ((double)digits / POWERS[after] == size)
        return put_decimal(to, digits, after);
    for (after++; after <= 17 - before; after++)
        if (nearest(size, after, &digits))
            return put_decimal(to, digits, after);
    return NULL;
}
