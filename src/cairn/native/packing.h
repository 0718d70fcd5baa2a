/* Values as MessagePack has them, in the shortest form, which is also how keys are hashed. */

#ifndef CAIRN_PACKING_H
#define CAIRN_PACKING_H

#include <stdint.h>
#include <string.h>

#define PACKED_MOST 9 /* bytes that a value may have beside those of its text */

static inline uint8_t *put_big(uint8_t *to, uint64_t value, int bytes)
{
    for (int at = bytes - 1; at >= 0; at--) {
        to[at] = (uint8_t)value;
        value >>= 8;
    }
    return to + bytes;
}

/* Whether two or four bytes hold a number; all else holds every one. */
static inline int has_room(int64_t value, int bytes)
{
    int64_t end = bytes == 2 ? 1LL << 15 : 1LL << 31;
    return (bytes != 2 && bytes != 4) || (value >= -end && value < end);
}

/* In two, four or eight bytes; NULL: it needs more. */
static inline uint8_t *put_whole_binary(uint8_t *to, int64_t value, int bytes)
{
    return has_room(value, bytes) ? put_big(to, (uint64_t)value, bytes) : NULL;
}

static inline uint8_t *pack_integer(uint8_t *to, int64_t value)
{
    if (value >= 0) {
        if (value < 0x80)
            return *to = (uint8_t)value, to + 1;
        if (value <= 0xff)
            return *to = 0xcc, put_big(to + 1, (uint64_t)value, 1);
        if (value <= 0xffff)
            return *to = 0xcd, put_big(to + 1, (uint64_t)value, 2);
        if (value <= 0xffffffffLL)
            return *to = 0xce, put_big(to + 1, (uint64_t)value, 4);
        return *to = 0xcf, put_big(to + 1, (uint64_t)value, 8);
    }
    if (value >= -0x20)
        return *to = (uint8_t)value, to + 1;
    if (value >= -0x80)
        return *to = 0xd0, put_big(to + 1, (uint64_t)value, 1);
    if (value >= -0x8000)
        return *to = 0xd1, put_big(to + 1, (uint64_t)value, 2);
    if (value >= -0x80000000LL)
        return *to = 0xd2, put_big(to + 1, (uint64_t)value, 4);
    return *to = 0xd3, put_big(to + 1, (uint64_t)value, 8);
}

static inline uint8_t *put_real_binary(uint8_t *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return put_big(to, bits, 8);
}

static inline uint8_t *pack_double(uint8_t *to, double value)
{
    *to = 0xcb;
    return put_real_binary(to + 1, value);
}

static inline uint8_t *pack_bytes(uint8_t *to, const uint8_t *bytes, uint32_t length, int is_text)
{
    if (is_text && length < 32)
        *to++ = (uint8_t)(0xa0 | length);
    else if (length <= 0xff)
        *to = is_text ? 0xd9 : 0xc4, to = put_big(to + 1, length, 1);
    else if (length <= 0xffff)
        *to = is_text ? 0xda : 0xc5, to = put_big(to + 1, length, 2);
    else
        *to = is_text ? 0xdb : 0xc6, to = put_big(to + 1, length, 4);
    memcpy(to, bytes, length);
    return to + length;
}

static inline uint8_t *pack_head(uint8_t *to, uint32_t values)
{
    if (values < 16)
        return *to = (uint8_t)(0x90 | values), to + 1;
    *to = 0xdc;
    return put_big(to + 1, values, 2);
}

#endif
