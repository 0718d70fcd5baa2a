/* Records of SQLite, as they lie in its pages, to the messages that clients get.

   For each row: read the head of its record, then write its columns one by one: as fields of a
   DataRow, or as a line of COPY in a CopyData. Pages may be damaged, so no length in them is
   believed before it was held against the end of the memory. */

#include "batch.h"
#include "out.h"
#include "packing.h"
#include "reals.h"

#define COLUMNS_MOST 2000 /* that a table of SQLite can have */

enum { DAMAGED = 2 }; /* beside those of `batch.h`; ODD: a value that needs more than is known here */

typedef struct {
    uint64_t type;
    const uint8_t *at;
} Stored;

EXPORT int out_prepare(OutPlan *plan)
{
    static const char LETTERS[] = "\\\\\bb\ff\nn\rr\tt\vv";
    memset(plan->care, 0, sizeof plan->care);
    if (plan->is_csv) {
        plan->care['\r'] = plan->care['\n'] = 1;
        plan->care[plan->delimiter & 255] = plan->care[plan->quote & 255] = 1;
        return TAKEN;
    }
    for (const char *letter = LETTERS; *letter; letter += 2)
        plan->care[(uint8_t)letter[0]] = (uint8_t)letter[1];
    if (plan->delimiter != '\t')
        plan->care[plan->delimiter & 255] = (uint8_t)plan->delimiter;
    return TAKEN;
}

/* --- reading -------------------------------------------------------------------------------- */

static const uint8_t *varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint64_t found = 0;
    for (int count = 0; count < 9 && at < end; count++, at++) {
        if (count == 8)
            return *value = found << 8 | *at, at + 1;
        found = found << 7 | (*at & 127);
        if (*at < 128)
            return *value = found, at + 1;
    }
    return NULL;
}

static uint64_t size_of(uint64_t type)
{
    static const uint8_t SIZES[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
    return type < 12 ? SIZES[type] : (type - 12) >> 1;
}

/* Where the first `count` columns of a record are; those that it lacks are NULL. */
static int read_head(const uint8_t *at, const uint8_t *end, int32_t count, Stored *found)
{
    uint64_t size;
    const uint8_t *begun = at;
    at = varint(at, end, &size);
    if (!at || size > (uint64_t)(end - begun) || size < (uint64_t)(at - begun))
        return 0;
    const uint8_t *head_end = begun + size, *body = head_end;
    for (int32_t number = 0; number < count; number++) {
        found[number].type = 0;
        found[number].at = body;
        if (at == head_end)
            continue;
        at = varint(at, head_end, &found[number].type);
        if (!at || size_of(found[number].type) > (uint64_t)(end - body))
            return 0;
        body += size_of(found[number].type);
    }
    return 1;
}

static int64_t whole(Stored value)
{
    if (value.type >= 8)
        return value.type == 9;
    uint64_t size = size_of(value.type);
    int64_t found = (int8_t)value.at[0];
    for (uint64_t at = 1; at < size; at++)
        found = (int64_t)((uint64_t)found << 8 | value.at[at]);
    return found;
}

static double real(Stored value)
{
    uint64_t bits = 0;
    double found;
    if (value.type != 7)
        return (double)whole(value);
    for (int at = 0; at < 8; at++)
        bits = bits << 8 | value.at[at];
    memcpy(&found, &bits, 8);
    return found;
}

/* --- writing -------------------------------------------------------------------------------- */

static uint8_t *put_whole(uint8_t *to, int64_t value)
{
    if (value < 0)
        *to++ = '-';
    return put_digits(to, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 1);
}

/* A text in a line, with what it needs; there is room for twice its length and quotes. */
static uint8_t *put_careful(uint8_t *to, const OutPlan *plan, const uint8_t *text, size_t length)
{
    size_t at = 0;
    if (!plan->is_csv) {
        for (; at < length; at++) {
            if (plan->care[text[at]]) {
                *to++ = '\\';
                *to++ = plan->care[text[at]];
            } else
                *to++ = text[at];
        }
        return to;
    }
    int is_end = plan->columns == 1 && length == 2 && text[0] == '\\' && text[1] == '.';
    int is_null = length == (size_t)plan->null_length && !memcmp(text, plan->null, length);
    while (at < length && !plan->care[text[at]])
        at++;
    if (at == length && !is_null && !is_end) {
        memcpy(to, text, length);
        return to + length;
    }
    *to++ = (uint8_t)plan->quote;
    for (at = 0; at < length; at++) {
        if (text[at] == plan->quote || text[at] == plan->escape)
            *to++ = (uint8_t)plan->escape;
        *to++ = text[at];
    }
    *to++ = (uint8_t)plan->quote;
    return to;
}

/* A value of the other types; NULL: one that cannot be written here. */
static uint8_t *put_other(uint8_t *to, const OutColumn *column, Stored value)
{
    switch (column->kind) {
    case NUMBER: return put_shown_decimal(to, value.at, size_of(value.type), column->scale);
    case UUID: return put_uuid(to, value.at, size_of(value.type));
    case DATE:
        return column->binary ? put_date_binary(to, whole(value)) : put_date(to, whole(value));
    default:
        return column->binary ? put_moment_binary(to, whole(value))
                                 : put_moment(to, whole(value), column->kind == ZONED);
    }
}

/* Whether it is stored as values of the column's type are. */
static int fits(const OutColumn *column, Stored value)
{
    switch (column->kind) {
    case GIVEN: return 1;
    case TEXTS: return !value.type || value.type >= 12;
    case NUMBER:
    case UUID: return !value.type || (value.type >= 12 && value.type % 2 == 0);
    default: return value.type <= 9;
    }
}

/* A value of the row as text or in binary form: in place, or in `small`. `*length` NULL_LENGTH: NULL.
   0: one that cannot be written here. */
static int value_text(const OutColumn *column, Stored value, int64_t row, uint8_t *small,
                      const uint8_t **text, size_t *length)
{
    uint8_t *end = small;
    if (column->kind == GIVEN) {
        int64_t at = column->offset + row;
        if (column->valid && !(column->valid[at >> 3] >> (at & 7) & 1))
            return *length = NULL_LENGTH, 1;
        *text = column->bytes + column->places[at];
        return *length = (size_t)(column->places[at + 1] - column->places[at]), 1;
    }
    if (!value.type)
        return *length = NULL_LENGTH, 1;
    *text = small;
    if (column->kind == TEXTS) {
        *text = value.at;
        return *length = size_of(value.type), 1;
    }
    if (column->kind > GIVEN)
        end = put_other(small, column, value);
    else if (column->kind == TRUTH)
        *end++ = whole(value) ? 't' : 'f';
    else if (column->binary) {
        end = column->kind == REAL ? put_real_binary(small, real(value))
                                   : put_whole_binary(small, whole(value), column->binary);
    } else if (column->kind == WHOLE)
        end = put_whole(small, whole(value));
    else
        end = put_real(small, real(value));
    *length = end ? (size_t)(end - small) : 0;
    return end != NULL;
}

/* One message at the end of `out`, whose first bytes are its head. TAKEN, ODD, DAMAGED or NO_MEMORY. */
static int put_row(Batch *out, const OutPlan *plan, const Stored *stored, int64_t row)
{
    size_t used = plan->is_line ? 5 : 7, begun = out->size;
    for (int32_t number = 0; number < plan->columns; number++) {
        const OutColumn *column = &plan->column[number];
        const uint8_t *text = NULL;
        uint8_t small[SHOWN_MOST];
        size_t length = 0;
        Stored none = {0, NULL};
        Stored value = column->kind == GIVEN ? none : stored[column->place];
        if (!fits(column, value))
            return DAMAGED;
        if (!value_text(column, value, row, small, &text, &length))
            return ODD;
        size_t most = length == NULL_LENGTH ? (size_t)plan->null_length : 2 * length;
        if (!batch_reserve(out, used + most + 16))
            return NO_MEMORY;
        uint8_t *to = out->data + begun + used;
        if (!plan->is_line) {
            to = put_big(to, length, 4);
            if (length != NULL_LENGTH) {
                memcpy(to, text, length);
                to += length;
            }
        } else {
            if (number)
                *to++ = (uint8_t)plan->delimiter;
            if (length == NULL_LENGTH) {
                memcpy(to, plan->null, (size_t)plan->null_length);
                to += plan->null_length;
            } else
                to = put_careful(to, plan, text, length);
        }
        used = (size_t)(to - out->data) - begun;
        if (used > INT32_MAX)
            return DAMAGED;
    }
    if (!batch_reserve(out, used + 16))
        return NO_MEMORY;
    uint8_t *message = out->data + begun;
    if (plan->is_line)
        message[used++] = '\n';
    message[0] = plan->is_line ? 'd' : (uint8_t)plan->label;
    put_big(message + 1, used - 1, 4);
    if (!plan->is_line)
        put_big(message + 5, (uint64_t)plan->columns, 2);
    batch_add(out, 0, (uint32_t)used);
    return TAKEN;
}

/* Messages of records that begin at `starts` in `memory`, into `out`, which is emptied first.
   `out->lengths` tells how long each is. */
EXPORT int rows_out(Batch *out, const OutPlan *plan, const uint8_t *memory, size_t length,
                    const int64_t *starts, size_t count)
{
    Stored stored[COLUMNS_MOST];
    int32_t wanted = 0;
    out->size = out->rows = 0;
    for (int32_t number = 0; number < plan->columns; number++)
        if (plan->column[number].kind != GIVEN && plan->column[number].place >= wanted)
            wanted = plan->column[number].place + 1;
    if (wanted > COLUMNS_MOST)
        return DAMAGED;
    for (size_t row = 0; row < count; row++) {
        if (starts[row] < 0 || (uint64_t)starts[row] >= length ||
            !read_head(memory + starts[row], memory + length, wanted, stored))
            return DAMAGED;
        int state = put_row(out, plan, stored, (int64_t)row);
        if (state != TAKEN)
            return state;
    }
    return TAKEN;
}
