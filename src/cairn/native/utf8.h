/* Whether bytes are UTF-8 as Python and PostgreSQL accept it: no surrogates, nothing overlong. */

#ifndef CAIRN_UTF8_H
#define CAIRN_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int is_follower(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

static inline int is_utf8(const uint8_t *at, size_t length)
{
    const uint8_t *end = at + length;
    while (at < end) {
        uint64_t eight;
        while (end - at >= 8 && (memcpy(&eight, at, 8), !(eight & 0x8080808080808080ull)))
            at += 8;
        while (at < end && *at < 0x80)
            at++;
        if (at == end)
            break;
        if (*at < 0xc2 || *at > 0xf4)
            return 0;
        int more = *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
        if (end - at <= more || !is_follower(at[1]))
            return 0;
        if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
            (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f))
            return 0;
        for (int number = 2; number <= more; number++)
            if (!is_follower(at[number]))
                return 0;
        at += 1 + more;
    }
    return 1;
}

#endif
