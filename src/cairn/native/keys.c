/* murmur3_x86_32 with the seed that all of Cairn uses. */

#include "keys.h"

#include <string.h>

#define SEED 13

static inline uint32_t turned(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

static inline uint32_t mixed(uint32_t word)
{
    return turned(word * 0xcc9e2d51u, 15) * 0x1b873593u;
}

uint32_t bucket_of(const uint8_t *key, uint32_t length, uint32_t bucket_count)
{
    uint32_t hash = SEED, at = 0;
    for (; at + 4 <= length; at += 4) {
        uint32_t word = key[at] | (uint32_t)key[at + 1] << 8 | (uint32_t)key[at + 2] << 16 |
                        (uint32_t)key[at + 3] << 24;
        hash = turned(hash ^ mixed(word), 13) * 5 + 0xe6546b64u;
    }
    uint32_t rest = 0;
    for (uint32_t left = length - at; left > 0; left--)
        rest = rest << 8 | key[at + left - 1];
    if (at < length)
        hash ^= mixed(rest);
    hash ^= length;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return (hash ^ hash >> 16) % bucket_count + 1;
}
