/* Values of MessagePack as rows have them. Nothing in them is believed before its end was looked at. */

#ifndef CAIRN_UNPACKING_H
#define CAIRN_UNPACKING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PACKED_NULL = 0, PACKED_WHOLE = 1, PACKED_REAL = 2, PACKED_TEXT = 3, PACKED_BYTES = 4 };

typedef struct {
    int kind;
    int64_t number;
    double real;
    const uint8_t *bytes; /* of a text and of bytes */
    uint32_t length;
} Unpacked;

static inline uint64_t big(const uint8_t *at, int bytes)
{
    uint64_t found = 0;
    while (bytes--)
        found = found << 8 | *at++;
    return found;
}

/* Bytes of the head of a value, and in `*body` those that follow it; 0: no value of ours. */
static inline int measure(const uint8_t *at, const uint8_t *end, uint64_t *body)
{
    uint8_t kind = *at;
    int counted = 0;
    *body = 0;
    if (kind < 0x80 || kind >= 0xe0 || kind == 0xc0 || kind == 0xc2 || kind == 0xc3)
        return 1;
    if (kind >= 0xa0 && kind <= 0xbf)
        return *body = kind & 31, 1;
    switch (kind) {
    case 0xcc: case 0xd0: *body = 1; return 1;
    case 0xcd: case 0xd1: *body = 2; return 1;
    case 0xce: case 0xd2: *body = 4; return 1;
    case 0xd3: case 0xcb: *body = 8; return 1;
    case 0xcf: *body = 8; return end - at > 1 && at[1] < 0x80; /* no more than SQLite can hold */
    case 0xc4: case 0xd9: counted = 1; break;
    case 0xc5: case 0xda: counted = 2; break;
    case 0xc6: case 0xdb: counted = 4; break;
    default: return 0;
    }
    if (end - at <= counted)
        return 0;
    *body = big(at + 1, counted);
    return 1 + counted;
}

/* Where the value that begins at `at` ends; NULL: nowhere before `end`, or it is no value of ours. */
static inline const uint8_t *after_value(const uint8_t *at, const uint8_t *end)
{
    uint64_t body;
    int head = at < end ? measure(at, end, &body) : 0;
    return head && (uint64_t)(end - at) >= (uint64_t)head + body ? at + head + body : NULL;
}

/* A value whose end was found before. */
static inline Unpacked unpack(const uint8_t *at, const uint8_t *end)
{
    Unpacked found = {.kind = PACKED_WHOLE};
    uint64_t body, bits;
    int head = measure(at, end, &body);
    switch (*at) {
    case 0xc0: found.kind = PACKED_NULL; break;
    case 0xc2: case 0xc3: found.number = *at == 0xc3; break;
    case 0xcb:
        bits = big(at + 1, 8);
        memcpy(&found.real, &bits, 8);
        found.kind = PACKED_REAL;
        break;
    case 0xc4: case 0xc5: case 0xc6: found.kind = PACKED_BYTES; break;
    case 0xcc: case 0xcd: case 0xce: case 0xcf: found.number = (int64_t)big(at + 1, (int)body); break;
    case 0xd0: found.number = (int8_t)at[1]; break;
    case 0xd1: found.number = (int16_t)big(at + 1, 2); break;
    case 0xd2: found.number = (int32_t)big(at + 1, 4); break;
    case 0xd3: found.number = (int64_t)big(at + 1, 8); break;
    default:
        if (*at < 0x80 || *at >= 0xe0)
            found.number = (int8_t)*at;
        else
            found.kind = PACKED_TEXT;
    }
    if (found.kind >= PACKED_TEXT) {
        found.bytes = at + head;
        found.length = (uint32_t)body;
    }
    return found;
}

#endif
