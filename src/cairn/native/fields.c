/* Only what is plain is read here: spellings that everybody writes. For anything else NULL is
   returned, and Python reads the line again, or says what is wrong with it. */

#include "fields.h"

#include <stdlib.h>

#include "keys.h"
#include "packing.h"

#define DIGITS_MOST 18 /* decimal digits that always fit an int64_t */
#define EXACT_MOST 15  /* and a double */

static inline int is_digit(uint8_t byte)
{
    return (unsigned)(byte - '0') < 10;
}

static int read_integer(const uint8_t *text, uint32_t length, int64_t *value)
{
    const uint8_t *end = text + length;
    int is_negative = length && *text == '-';
    text += is_negative;
    if (text == end || end - text > DIGITS_MOST + 1 || (*text == '0' && (end - text > 1 || is_negative)))
        return 0;
    uint64_t found = 0;
    for (; text < end; text++) {
        if (!is_digit(*text))
            return 0;
        found = found * 10 + (uint64_t)(*text - '0');
    }
    if (found > (uint64_t)INT64_MAX)
        return 0; /* the lowest one of all is rare: Python reads it */
    *value = is_negative ? -(int64_t)found : (int64_t)found;
    return 1;
}

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* As JSON writes numbers. Few digits and a small power of ten give the exact double by one
   division; the rest is strtod's. */
static int read_double(const uint8_t *text, uint32_t length, double *value)
{
    char copy[64];
    if (!length || length >= sizeof copy)
        return 0;
    const uint8_t *at = text, *end = text + length;
    int is_negative = *at == '-';
    at += is_negative;
    const uint8_t *whole = at;
    uint64_t digits = 0;
    int count = 0, after = 0;
    for (; at < end && is_digit(*at); at++, count++)
        digits = digits * 10 + (uint64_t)(*at - '0');
    if (!count || (*whole == '0' && count > 1))
        return 0;
    if (at < end && *at == '.') {
        at++;
        for (; at < end && is_digit(*at); at++, after++)
            digits = digits * 10 + (uint64_t)(*at - '0');
        if (!after)
            return 0;
    }
    if (at == end && count + after <= EXACT_MOST) {
        double found = (double)digits / POWERS[after];
        *value = (is_negative ? -found : found) + 0.0; /* -0.0 becomes 0.0 */
        return 1;
    }
    if (at < end) {
        if (*at != 'e' && *at != 'E')
            return 0;
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        if (at == end)
            return 0;
        for (; at < end; at++)
            if (!is_digit(*at))
                return 0;
    }
    memcpy(copy, text, length);
    copy[length] = 0;
    char *stopped;
    double found = strtod(copy, &stopped);
    if (stopped != copy + length || found - found != 0.0 || found == 0.0)
        return 0; /* another locale's point, too large, or perhaps too small */
    *value = found + 0.0;
    return 1;
}

static int read_boolean(const uint8_t *text, uint32_t length, int64_t *value)
{
    if (length == 1 && (*text == 't' || *text == 'f' || *text == '1' || *text == '0'))
        return *value = *text == 't' || *text == '1', 1;
    if (length == 4 && !memcmp(text, "true", 4))
        return *value = 1, 1;
    if (length == 5 && !memcmp(text, "false", 5))
        return *value = 0, 1;
    return 0;
}

static int read_uuid(const uint8_t *text, uint32_t length, uint8_t *value)
{
    if (length != 36)
        return 0;
    for (int at = 0, byte = 0; at < 36;) {
        if (at == 8 || at == 13 || at == 18 || at == 23) {
            if (text[at++] != '-')
                return 0;
            continue;
        }
        int both = 0;
        for (int half = 0; half < 2; half++, at++) {
            uint8_t letter = text[at] | 0x20;
            int digit = is_digit(text[at]) ? text[at] - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
            if (digit < 0)
                return 0;
            both = both << 4 | digit;
        }
        value[byte++] = (uint8_t)both;
    }
    return 1;
}

/* `count` digits as a number, or -1. */
static int number(const uint8_t *text, int count)
{
    int found = 0;
    for (; count; count--, text++) {
        if (!is_digit(*text))
            return -1;
        found = found * 10 + (*text - '0');
    }
    return found;
}

/* Days since 1970-01-01, by the calendar that Python and SQL have. */
static int64_t days(int year, int month, int day)
{
    year -= month <= 2;
    int era = year / 400, of_era = year - era * 400;
    int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* `2024-05-06` and `2024-05-06 07:08:09.123456+02:30`, in microseconds since 1970. */
static int read_time(const uint8_t *text, uint32_t length, int kind, int64_t *value)
{
    static const uint8_t LAST[] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const uint8_t *end = text + length;
    if (length < 10 || text[4] != '-' || text[7] != '-')
        return 0;
    int year = number(text, 4), month = number(text + 5, 2), day = number(text + 8, 2);
    if (year < 1 || month < 1 || month > 12 || day < 1)
        return 0;
    int is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > LAST[month] + (month == 2 && is_leap))
        return 0;
    *value = days(year, month, day) * 86400000000LL;
    if (kind == DATE || length == 10)
        return length == 10;
    if (length < 19 || text[10] != ' ' || text[13] != ':' || text[16] != ':')
        return 0;
    int hour = number(text + 11, 2), minute = number(text + 14, 2), second = number(text + 17, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59)
        return 0;
    *value += (hour * 3600LL + minute * 60 + second) * 1000000;
    const uint8_t *at = text + 19;
    if (at < end && *at == '.') {
        int64_t unit = 100000;
        for (at++; at < end && is_digit(*at) && unit; at++, unit /= 10)
            *value += (*at - '0') * unit;
        if (unit == 100000)
            return 0;
    }
    if (at == end)
        return 1;
    if (kind != ZONED || year < 2 || year > 9998)
        return 0; /* a zone is not for here, or could lead out of all years */
    int64_t sign = *at == '-' ? 1 : -1;
    if (*at != '+' && *at != '-')
        return 0;
    int hours, minutes = 0;
    if (end - at == 6 && at[3] == ':')
        minutes = number(at + 4, 2);
    else if (end - at != 3)
        return 0;
    hours = number(at + 1, 2);
    if (hours < 0 || hours > 15 || minutes < 0 || minutes > 59)
        return 0;
    *value += sign * (hours * 3600LL + minutes * 60) * 1000000;
    return 1;
}

static int fits(const Column *column, Field field)
{
    if (!column->longest || field.length <= (uint32_t)column->longest)
        return 1;
    uint32_t characters = 0;
    for (uint32_t at = 0; at < field.length; at++)
        characters += (field.text[at] & 0xc0) != 0x80;
    return characters <= (uint32_t)column->longest;
}

static int read_whole(const Column *column, Field field, int64_t *value)
{
    switch (column->kind) {
    case INTEGER:
        return read_integer(field.text, field.length, value) && has_room(*value, column->longest);
    case UNSIGNED:
        return read_integer(field.text, field.length, value) && *value >= 0;
    case BOOLEAN:
        return read_boolean(field.text, field.length, value);
    default:
        return read_time(field.text, field.length, column->kind, value);
    }
}

uint8_t *pack_field(uint8_t *to, const Column *column, Field field)
{
    int64_t whole;
    double real;
    uint8_t uuid[16];
    if (!field.text) {
        *to = 0xc0;
        return column->required ? NULL : to + 1;
    }
    switch (column->kind) {
    case TEXT:
        return fits(column, field) ? pack_bytes(to, field.text, field.length, 1) : NULL;
    case DOUBLE:
        return read_double(field.text, field.length, &real) ? pack_double(to, real) : NULL;
    case UUID:
        return read_uuid(field.text, field.length, uuid) ? pack_bytes(to, uuid, 16, 0) : NULL;
    default:
        return read_whole(column, field, &whole) ? pack_integer(to, whole) : NULL;
    }
}

uint8_t *key_field(uint8_t *to, const Column *column, Field field)
{
    int64_t whole;
    if (!field.text)
        return *to = 0xc0, to + 1;
    switch (column->kind) {
    case TEXT:
        if (field.length > KEY_MOST)
            return NULL;
        memcpy(to, field.text, field.length);
        return to + field.length;
    case UUID:
        to[0] = 0xd8, to[1] = 2;
        return read_uuid(field.text, field.length, to + 2) ? to + 18 : NULL;
    case BOOLEAN:
        if (!read_boolean(field.text, field.length, &whole))
            return NULL;
        return *to = whole ? 0xc3 : 0xc2, to + 1;
    case INTEGER:
    case UNSIGNED:
        return read_whole(column, field, &whole) ? pack_integer(to, whole) : NULL;
    default:
        return NULL; /* `native/rows.py` asks for no such key */
    }
}
