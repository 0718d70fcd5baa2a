/* DECIMAL from its bytes and back: equal to `model/types/decimals.py`, byte by byte. */

#include "decimals.h"

#include <string.h>

enum { NEGATIVE = 1, ZERO = 2, POSITIVE = 3 };
enum { NO_ZEROS = 101, LAST_MARK = 254, MOST_ZEROS = LAST_MARK - NO_ZEROS };
#define BIAS 0x8000
#define E19 10000000000000000000ULL /* the largest power of ten in 64 bits */

Wide ten_to(int exponent)
{
    static const uint64_t SMALL[] = {
        1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL, 100000ULL, 1000000ULL, 10000000ULL, 100000000ULL,
        1000000000ULL, 10000000000ULL, 100000000000ULL, 1000000000000ULL, 10000000000000ULL,
        100000000000000ULL, 1000000000000000ULL, 10000000000000000ULL, 100000000000000000ULL,
        1000000000000000000ULL, E19,
    };
    return exponent < 20 ? (Wide)SMALL[exponent] : (Wide)SMALL[exponent - 19] * E19;
}

static int put_small(uint64_t number, uint8_t *to, int least)
{
    uint8_t back[20];
    int count = 0;
    while (number || count < least) {
        back[count++] = (uint8_t)(number % 10);
        number /= 10;
    }
    for (int at = 0; at < count; at++)
        to[at] = back[count - 1 - at];
    return count;
}

int digits_of(Wide number, uint8_t *to)
{
    if (number < E19)
        return put_small((uint64_t)number, to, 0);
    int count = digits_of(number / E19, to);
    return count + put_small((uint64_t)(number % E19), to + count, 19);
}

int decimal_read(const uint8_t *data, size_t length, Number *found)
{
    int zeros = 0;
    if (!data || !length)
        return 0;
    uint8_t last = data[length - 1];
    if (last >= NO_ZEROS && last <= LAST_MARK) {
        zeros = last - NO_ZEROS;
        length -= data[0] == POSITIVE ? 2 : 1;
    }
    found->digits = 0;
    found->is_negative = data[0] == NEGATIVE;
    if (data[0] == ZERO) {
        found->scale = zeros;
        return length == 1;
    }
    if ((data[0] != POSITIVE && data[0] != NEGATIVE) || length < 4)
        return 0;
    size_t end = length - (data[0] == NEGATIVE); /* its closing byte */
    uint8_t inverted = found->is_negative ? 0xff : 0;
    int adjusted = (((data[1] ^ inverted) << 8) | (data[2] ^ inverted)) - BIAS;
    int count = 0;
    if (end < 4 || end > 3 + (MOST_DIGITS + 1) / 2)
        return 0;
    for (size_t at = 3; at < end; at++) {
        unsigned pair = (unsigned)(data[at] ^ inverted) - 1;
        if (pair > 99)
            return 0;
        if (at + 1 == end && pair % 10 == 0) { /* one digit; a last pair of zeros is no key */
            if (!pair)
                return 0;
            found->digits = found->digits * 10 + pair / 10;
            count++;
        } else {
            found->digits = found->digits * 100 + pair;
            count += 2;
        }
    }
    int exponent = adjusted - count + 1;
    int more = (exponent > 0 ? exponent : 0) + zeros; /* zeros that become digits */
    if (exponent < -MOST_SCALE || more > MOST_DIGITS || count + more > MOST_DIGITS)
        return 0;
    found->digits *= ten_to(more);
    found->scale = (exponent > 0 ? 0 : -exponent) + zeros;
    return 1;
}

size_t decimal_put(const uint8_t *digits, int count, int scale, int is_negative, int zeros, uint8_t *to)
{
    uint8_t *start = to;
    if (!count) {
        *to++ = ZERO;
    } else {
        int adjusted = count - 1 - scale + BIAS;
        *to++ = is_negative ? NEGATIVE : POSITIVE;
        uint8_t *body = to;
        *to++ = (uint8_t)(adjusted >> 8);
        *to++ = (uint8_t)adjusted;
        for (int at = 0; at < count; at += 2)
            *to++ = (uint8_t)(digits[at] * 10 + (at + 1 < count ? digits[at + 1] : 0) + 1);
        if (is_negative) {
            for (; body < to; body++)
                *body ^= 0xff;
            *to++ = 0xff;
        }
    }
    if (zeros > 0) {
        if (*start == POSITIVE)
            *to++ = 0;
        *to++ = (uint8_t)(NO_ZEROS + (zeros < MOST_ZEROS ? zeros : MOST_ZEROS));
    }
    return (size_t)(to - start);
}

size_t decimal_write(const Number *number, int is_shown, uint8_t *to)
{
    uint8_t digits[48];
    int count = digits_of(number->digits, digits), stripped = count;
    while (stripped && !digits[stripped - 1])
        stripped--;
    int cut = count - stripped, scale = number->scale - cut;
    int zeros = !count ? number->scale : cut < number->scale ? cut : number->scale;
    return decimal_put(digits, stripped, scale, number->is_negative, is_shown ? zeros : 0, to);
}
