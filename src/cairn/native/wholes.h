/* Whole numbers as they are mostly written. */

#ifndef CAIRN_WHOLES_H
#define CAIRN_WHOLES_H

#include <stdint.h>

/* Whether all of it is one, of up to 18 digits: no sign but a minus, no blanks. */
static inline int whole_number(const uint8_t *at, const uint8_t *end, int64_t *found)
{
    int is_negative = at < end && *at == '-';
    int64_t number = 0;
    at += is_negative;
    if (at == end || end - at > 18)
        return 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        number = number * 10 + (*at - '0');
    }
    *found = is_negative ? -number : number;
    return 1;
}

#endif
