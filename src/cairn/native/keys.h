/* Where a key becomes a bucket, once more: equal to `model/sharding/buckets.py`, value by value. */

#ifndef CAIRN_KEYS_H
#define CAIRN_KEYS_H

#include <stdint.h>

#define KEY_MOST 4096 /* bytes of a key that are hashed here; longer ones take the long way */

uint32_t bucket_of(const uint8_t *key, uint32_t length, uint32_t bucket_count);

#endif
