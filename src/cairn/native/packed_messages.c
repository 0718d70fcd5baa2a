/* Rows of MessagePack, as SQLite has told their values to Python, to DataRow messages. */

#include "batch.h"
#include "out.h"
#include "packing.h"
#include "reals.h"
#include "unpacking.h"

/* In binary form where that is asked for; NULL: it is left to Python. */
static uint8_t *put_number(uint8_t *to, const OutColumn *column, const Unpacked *value)
{
    int is_real = value->kind == PACKED_REAL;
    switch (column->kind) {
    case WHOLE:
        if (is_real)
            return NULL;
        if (column->binary)
            return put_whole_binary(to, value->number, column->binary);
        if (value->number < 0)
            *to++ = '-';
        return put_digits(to, value->number < 0 ? 0 - (uint64_t)value->number : (uint64_t)value->number, 1);
    case REAL:
        return !is_real ? NULL : column->binary ? put_real_binary(to, value->real) : put_real(to, value->real);
    case TRUTH: *to++ = value->number ? 't' : 'f'; return is_real ? NULL : to;
    case DATE:
        if (is_real)
            return NULL;
        return column->binary ? put_date_binary(to, value->number) : put_date(to, value->number);
    case MOMENT:
    case ZONED:
        if (is_real)
            return NULL;
        return column->binary ? put_moment_binary(to, value->number)
                                 : put_moment(to, value->number, column->kind == ZONED);
    default: return NULL;
    }
}

/* One field behind `*used` bytes of the message. */
static int put_field(Batch *out, const OutColumn *column, const Unpacked *value, size_t *used)
{
    size_t size = value->kind == PACKED_TEXT || value->kind == PACKED_BYTES ? value->length : 0;
    if (!batch_reserve(out, *used + size + SHOWN_MOST + 16))
        return NO_MEMORY;
    uint8_t *head = out->data + out->size + *used, *to = head + 4;
    if (value->kind == PACKED_NULL) {
        put_big(head, NULL_LENGTH, 4);
        *used += 4;
        return TAKEN;
    }
    if (value->kind == PACKED_TEXT) {
        if (column->kind != TEXTS)
            return ODD;
        memcpy(to, value->bytes, size);
        to += size;
    } else if (value->kind == PACKED_BYTES) {
        to = column->kind == NUMBER ? put_shown_decimal(to, value->bytes, size, column->scale)
             : column->kind == UUID ? put_uuid(to, value->bytes, size)
                                    : NULL;
    } else
        to = put_number(to, column, value);
    if (!to)
        return ODD;
    put_big(head, (uint64_t)(to - head - 4), 4);
    *used += (size_t)(to - head);
    return TAKEN;
}

static int put_message(Batch *out, const OutPlan *plan, const uint8_t **row, const uint8_t *end)
{
    size_t used = 7; /* its kind, its length and the number of its fields */
    const uint8_t *at = *row;
    for (int32_t number = 0; number < plan->columns; number++) {
        const uint8_t *next = after_value(at, end);
        if (!next)
            return ODD;
        Unpacked value = unpack(at, next);
        int state = put_field(out, &plan->column[number], &value, &used);
        if (state != TAKEN)
            return state;
        at = next;
    }
    if (used > INT32_MAX)
        return ODD;
    if (!batch_reserve(out, used + 16))
        return NO_MEMORY;
    uint8_t *message = out->data + out->size;
    message[0] = (uint8_t)plan->label;
    put_big(message + 1, used - 1, 4);
    put_big(message + 5, (uint64_t)plan->columns, 2);
    batch_add(out, 0, (uint32_t)used);
    *row = at;
    return TAKEN;
}

/* The head of a list, and how long that is; NULL: it is none. */
static const uint8_t *list_head(const uint8_t *at, const uint8_t *end, uint64_t *length)
{
    if (at < end && (*at & 0xf0) == 0x90)
        return *length = *at & 15, at + 1;
    if (end - at >= 3 && *at == 0xdc)
        return *length = big(at + 1, 2), at + 3;
    if (end - at >= 5 && *at == 0xdd)
        return *length = big(at + 1, 4), at + 5;
    return NULL;
}

/* Messages of a list of rows, into `out`, which is emptied first. ODD: Python has to write them. */
EXPORT int packed_messages(Batch *out, const OutPlan *plan, const uint8_t *data, size_t length)
{
    const uint8_t *end = data + length;
    uint64_t rows, width;
    out->size = out->rows = 0;
    const uint8_t *at = list_head(data, end, &rows);
    for (uint64_t row = 0; at && row < rows; row++) {
        at = list_head(at, end, &width);
        if (!at || width != (uint64_t)plan->columns)
            return ODD;
        int state = put_message(out, plan, &at, end);
        if (state != TAKEN)
            return state;
    }
    return at == end ? TAKEN : ODD;
}
