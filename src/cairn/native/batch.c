/* Rows gathered for one transaction, and brought into the order of their buckets. */

#include "batch.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 5 /* `model/log/packed_rows.py` knows what they say */

static int grown(void **memory, size_t *room, size_t wanted, size_t each)
{
    if (wanted <= *room)
        return 1;
    size_t more = *room + *room / 2 + 4096;
    if (more < wanted)
        more = wanted;
    void *found = realloc(*memory, more * each);
    if (!found)
        return 0;
    *memory = found;
    *room = more;
    return 1;
}

int batch_reserve(Batch *batch, size_t bytes)
{
    if (!grown((void **)&batch->data, &batch->room, batch->size + bytes, 1))
        return 0;
    size_t room = batch->rows_room;
    if (batch->rows < room)
        return 1;
    if (!grown((void **)&batch->buckets, &room, batch->rows + 1, sizeof(uint32_t)))
        return 0;
    uint32_t *lengths = realloc(batch->lengths, room * sizeof(uint32_t));
    if (!lengths)
        return 0;
    batch->lengths = lengths;
    batch->rows_room = room;
    return 1;
}

int batch_scratch(Batch *batch, size_t bytes)
{
    return grown((void **)&batch->scratch, &batch->scratch_room, bytes, 1);
}

void batch_add(Batch *batch, uint32_t bucket, uint32_t length)
{
    batch->buckets[batch->rows] = bucket;
    batch->lengths[batch->rows] = length;
    batch->rows++;
    batch->size += length;
}

EXPORT Batch *batch_new(void)
{
    return calloc(1, sizeof(Batch));
}

EXPORT void batch_free(Batch *batch)
{
    free(batch->data);
    free(batch->buckets);
    free(batch->lengths);
    free(batch->scratch);
    free(batch->bucket_ids);
    free(batch->bucket_rows);
    free(batch->bucket_starts);
    free(batch);
}

/* Rows packed elsewhere, `lengths` bytes each, behind those that are here. */
EXPORT int batch_append(Batch *batch, const uint8_t *rows, const uint32_t *lengths,
                        const uint32_t *buckets, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        if (!batch_reserve(batch, lengths[at]))
            return NO_MEMORY;
        memcpy(batch->data + batch->size, rows, lengths[at]);
        rows += lengths[at];
        batch_add(batch, buckets[at], lengths[at]);
    }
    return TAKEN;
}

/* Write `head` and the rows to `out`, in the order of their buckets; rows of one bucket keep
   theirs. There is room for all of it. */
EXPORT int batch_sort(Batch *batch, uint32_t bucket_count, const uint8_t *head, uint8_t *out)
{
    size_t all = (size_t)bucket_count + 1;
    uint64_t *bytes = calloc(all, sizeof(uint64_t));
    uint32_t *rows = calloc(all, sizeof(uint32_t));
    int state = NO_MEMORY;
    if (!bytes || !rows)
        goto end;
    for (size_t at = 0; at < batch->rows; at++) {
        if (batch->buckets[at] > bucket_count) {
            state = ODD; /* nothing outside the two tables is touched */
            goto end;
        }
        bytes[batch->buckets[at]] += batch->lengths[at];
        rows[batch->buckets[at]]++;
    }
    size_t found = 0;
    for (size_t bucket = 0; bucket < all; bucket++)
        found += rows[bucket] != 0;
    free(batch->bucket_ids);
    free(batch->bucket_rows);
    free(batch->bucket_starts);
    batch->bucket_ids = malloc((found + 1) * sizeof(uint32_t));
    batch->bucket_rows = malloc((found + 1) * sizeof(uint32_t));
    batch->bucket_starts = malloc((found + 1) * sizeof(uint64_t));
    if (!batch->bucket_ids || !batch->bucket_rows || !batch->bucket_starts)
        goto end;
    uint64_t place = 0;
    size_t number = 0;
    for (size_t bucket = 0; bucket < all; bucket++) {
        if (!rows[bucket])
            continue;
        batch->bucket_ids[number] = (uint32_t)bucket;
        batch->bucket_rows[number] = rows[bucket];
        batch->bucket_starts[number++] = place;
        uint64_t size = bytes[bucket];
        bytes[bucket] = place; /* from now on: where its next row goes */
        place += size;
    }
    batch->bucket_starts[number] = place;
    batch->bucket_total = number;
    memcpy(out, head, HEAD_BYTES);
    uint8_t *sorted = out + HEAD_BYTES;
    const uint8_t *from = batch->data;
    for (size_t at = 0; at < batch->rows; at++) {
        uint32_t length = batch->lengths[at];
        memcpy(sorted + bytes[batch->buckets[at]], from, length);
        bytes[batch->buckets[at]] += length;
        from += length;
    }
    state = TAKEN;
end:
    free(bytes);
    free(rows);
    return state;
}
