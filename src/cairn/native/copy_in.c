/* Lines of COPY to packed rows with their buckets.

   The order for each line: cut it into fields, find its bucket, pack its values. A line that is
   not plain stops the reading in front of it: nothing of it was taken, and Python goes on there. */

#include "batch.h"
#include "fields.h"
#include "keys.h"
#include "packing.h"
#include "utf8.h"

#include <string.h>

#define COLUMNS_MOST 1600 /* as PostgreSQL has them */
#define KEY_PARTS_MOST 16

typedef struct {
    int32_t is_csv;
    int32_t delimiter, quote;
    const uint8_t *null;
    int32_t null_length;
    int32_t fields; /* of a line */
    const Column *columns;
    int32_t width; /* the table's columns */
    const int32_t *order; /* the field of each, or -1: NULL */
    int32_t key_parts;
    const int32_t *key; /* their fields */
    int32_t bucket_count;
    uint8_t stops[256]; /* bytes that end a plain piece of a field */
} CopyPlan;

EXPORT int copy_prepare(CopyPlan *plan)
{
    if (plan->fields > COLUMNS_MOST || plan->key_parts > KEY_PARTS_MOST || plan->delimiter == '\\' ||
        plan->quote == '\\')
        return ODD;
    memset(plan->stops, 0, sizeof plan->stops);
    plan->stops[0] = plan->stops['\n'] = plan->stops['\r'] = plan->stops['\\'] = 1;
    plan->stops[plan->delimiter & 255] = 1;
    if (plan->is_csv)
        plan->stops[plan->quote & 255] = 1;
    return TAKEN;
}

static int is_null(const CopyPlan *plan, const uint8_t *text, size_t length)
{
    return length == (size_t)plan->null_length && !memcmp(text, plan->null, length);
}

/* One field of COPY's own format from `at` on. The place of its end, or NULL: not plain. */
static const uint8_t *text_field(const CopyPlan *plan, const uint8_t *at, const uint8_t *end,
                                 uint8_t **scratch, Field *field)
{
    const uint8_t *start = at;
    while (at < end && !plan->stops[*at])
        at++;
    if (at < end && (*at == plan->delimiter || *at == '\n')) {
        field->text = is_null(plan, start, (size_t)(at - start)) ? NULL : start;
        field->length = (uint32_t)(at - start);
        return at;
    }
    uint8_t *to = *scratch, *unescaped = to;
    memcpy(to, start, (size_t)(at - start));
    to += at - start;
    for (; at < end && *at != plan->delimiter && *at != '\n'; at++) {
        if (*at == 0 || *at == '\r')
            return NULL;
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        if (++at == end)
            return NULL;
        switch (*at) {
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'v': *to++ = '\v'; break;
        case 'x': case '.': case '\n': case '\r': case 0:
            return NULL;
        default:
            if (*at >= '0' && *at <= '7')
                return NULL;
            *to++ = *at;
        }
    }
    if (at == end)
        return NULL;
    *scratch = to;
    field->text = is_null(plan, start, (size_t)(at - start)) ? NULL : unescaped;
    field->length = (uint32_t)(to - unescaped);
    return at;
}

/* One field of CSV: quoted as a whole, or not at all. */
static const uint8_t *csv_field(const CopyPlan *plan, const uint8_t *at, const uint8_t *end,
                                uint8_t **scratch, Field *field)
{
    const uint8_t *start = at;
    if (at < end && *at == plan->quote) {
        uint8_t *to = *scratch;
        field->text = to;
        for (at++; at < end; at++) {
            if (*at == plan->quote) {
                if (at + 1 < end && at[1] == plan->quote)
                    at++;
                else
                    break;
            } else if (*at == 0 || *at == '\r')
                return NULL;
            *to++ = *at;
        }
        if (at >= end || ++at >= end || (*at != plan->delimiter && *at != '\n'))
            return NULL;
        field->length = (uint32_t)(to - *scratch);
        *scratch = to;
        return at;
    }
    while (at < end && (!plan->stops[*at] || *at == '\\'))
        at++;
    if (at == end || (*at != plan->delimiter && *at != '\n'))
        return NULL;
    field->text = is_null(plan, start, (size_t)(at - start)) ? NULL : start;
    field->length = (uint32_t)(at - start);
    return at;
}

/* The place behind a row, or NULL: not plain. */
static const uint8_t *cut(const CopyPlan *plan, const uint8_t *at, const uint8_t *end,
                          uint8_t *scratch, Field *fields)
{
    if (end - at >= 2 && at[0] == '\\' && at[1] == '.')
        return NULL; /* the end of the data, perhaps */
    for (int32_t number = 0; number < plan->fields; number++) {
        at = plan->is_csv ? csv_field(plan, at, end, &scratch, &fields[number])
                          : text_field(plan, at, end, &scratch, &fields[number]);
        if (!at || *at != (number + 1 == plan->fields ? '\n' : plan->delimiter))
            return NULL;
        at++;
    }
    return at;
}

static uint32_t find_bucket(const CopyPlan *plan, const Field *fields)
{
    uint8_t key[2 * KEY_MOST + 32];
    uint8_t *to = key;
    for (int32_t part = 0; part < plan->key_parts; part++) {
        to = key_field(to, &plan->columns[plan->key[part]], fields[plan->key[part]]);
        if (!to || to - key > KEY_MOST)
            return 0;
    }
    return bucket_of(key, (uint32_t)(to - key), (uint32_t)plan->bucket_count);
}

/* Take whole rows from `data`, which ends behind a newline, from `start` on. `used`: bytes of what was taken;
   `lines`: line ends in it. TAKEN: all of it; ODD: what follows is not plain. */
EXPORT int copy_take(Batch *batch, const CopyPlan *plan, const uint8_t *data, size_t start,
                     size_t length, size_t *used, size_t *lines)
{
    Field fields[COLUMNS_MOST];
    const uint8_t *begun = data + start, *at = begun, *end = data + length;
    *used = *lines = 0;
    while (at < end) {
        if (!batch_scratch(batch, (size_t)(end - at)))
            return NO_MEMORY;
        const uint8_t *next = cut(plan, at, end, batch->scratch, fields);
        if (!next || !is_utf8(at, (size_t)(next - at)))
            return ODD;
        uint32_t bucket = find_bucket(plan, fields);
        if (!bucket)
            return ODD;
        size_t most = (size_t)(next - at) + (size_t)(plan->width + 2) * PACKED_MOST + 36;
        if (most > UINT32_MAX)
            return ODD;
        if (!batch_reserve(batch, most))
            return NO_MEMORY;
        uint8_t *row = batch->data + batch->size;
        uint8_t *to = pack_integer(pack_head(row, (uint32_t)plan->width + 1), bucket);
        for (int32_t place = 0; place < plan->width && to; place++) {
            int32_t field = plan->order[place];
            if (field < 0)
                *to++ = 0xc0;
            else
                to = pack_field(to, &plan->columns[field], fields[field]);
        }
        if (!to)
            return ODD;
        batch_add(batch, bucket, (uint32_t)(to - row));
        if (plan->is_csv) { /* quotes may hold more of them */
            for (; at < next; at++)
                *lines += *at == '\n';
        } else {
            ++*lines;
            at = next;
        }
        *used = (size_t)(at - begun);
    }
    return TAKEN;
}
