/* Rows on their way into a table, packed as records of the row log have them.

   A row is an array of MessagePack: its bucket, then the table's columns in their order. Rows lie
   behind each other in `data`. Nothing here knows of Python: whoever calls holds no lock. */

#ifndef CAIRN_BATCH_H
#define CAIRN_BATCH_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { TAKEN = 0, ODD = 1, NO_MEMORY = -1 };

typedef struct {
    uint8_t *data; /* the rows */
    size_t size, room;
    uint32_t *buckets, *lengths; /* of each row */
    size_t rows, rows_room;
    uint8_t *scratch; /* values that had to be unescaped */
    size_t scratch_room;
    /* filled by `batch_sort`: one entry for each bucket that has rows, in their order */
    uint32_t *bucket_ids, *bucket_rows;
    uint64_t *bucket_starts; /* one more than buckets */
    size_t bucket_total;
} Batch;

/* Room for so many more bytes of one more row; 0 when there is no memory. */
int batch_reserve(Batch *batch, size_t bytes);
int batch_scratch(Batch *batch, size_t bytes);
/* The row that was written at the end of `data` counts from now on. */
void batch_add(Batch *batch, uint32_t bucket, uint32_t length);

#endif
