#include "shown.h"

#include "decimals.h"
#include "packing.h"
#include "reals.h"
#include "times.h"

#include <string.h>

#define MILLENNIUM_DAY 10957 /* 2000-01-01, from which PostgreSQL counts, since 1970 */

/* With at least `scale` digits behind the point. */
uint8_t *put_shown_decimal(uint8_t *to, const uint8_t *data, size_t length, int scale)
{
    Number number;
    uint8_t digits[48];
    if (!decimal_read(data, length, &number))
        return NULL;
    int count = digits_of(number.digits, digits), whole = count - number.scale;
    if (number.is_negative && count)
        *to++ = '-';
    if (whole <= 0)
        *to++ = '0';
    for (int at = 0; at < whole; at++)
        *to++ = (uint8_t)('0' + digits[at]);
    int behind = number.scale > scale ? number.scale : scale;
    if (behind > MOST_SCALE)
        return NULL;
    if (behind)
        *to++ = '.';
    for (int at = whole; at < whole + behind; at++)
        *to++ = (uint8_t)('0' + (at >= 0 && at < count ? digits[at] : 0));
    return to;
}

static uint8_t *put_day(uint8_t *to, const Moment *moment)
{
    to = put_digits(to, (uint64_t)moment->year, 4);
    *to++ = '-';
    to = put_digits(to, (uint64_t)moment->month, 2);
    *to++ = '-';
    return put_digits(to, (uint64_t)moment->of_month, 2);
}

uint8_t *put_moment(uint8_t *to, int64_t micros, int has_zone)
{
    Moment moment;
    if (!moment_of(micros, &moment))
        return NULL;
    to = put_day(to, &moment);
    uint64_t clock = (uint64_t)moment.micros, seconds = clock / SECOND;
    *to++ = ' ';
    to = put_digits(to, seconds / 3600, 2);
    *to++ = ':';
    to = put_digits(to, seconds / 60 % 60, 2);
    *to++ = ':';
    to = put_digits(to, seconds % 60, 2);
    if (clock % SECOND) {
        *to++ = '.';
        to = put_digits(to, clock % SECOND, 6);
        while (to[-1] == '0')
            to--;
    }
    if (has_zone) {
        memcpy(to, "+00", 3);
        to += 3;
    }
    return to;
}

uint8_t *put_date(uint8_t *to, int64_t micros)
{
    Moment moment;
    return moment_of(micros, &moment) ? put_day(to, &moment) : NULL;
}

uint8_t *put_moment_binary(uint8_t *to, int64_t micros)
{
    Moment moment;
    if (!moment_of(micros, &moment))
        return NULL;
    return put_big(to, (uint64_t)(micros - MILLENNIUM_DAY * DAY), 8);
}

uint8_t *put_date_binary(uint8_t *to, int64_t micros)
{
    Moment moment;
    if (!moment_of(micros, &moment))
        return NULL;
    return put_big(to, (uint64_t)(moment.day - MILLENNIUM_DAY), 4);
}

uint8_t *put_uuid(uint8_t *to, const uint8_t *data, size_t length)
{
    static const char HEX[] = "0123456789abcdef";
    if (length != 16)
        return NULL;
    for (int at = 0; at < 16; at++) {
        if (at == 4 || at == 6 || at == 8 || at == 10)
            *to++ = '-';
        *to++ = (uint8_t)HEX[data[at] >> 4];
        *to++ = (uint8_t)HEX[data[at] & 15];
    }
    return to;
}
