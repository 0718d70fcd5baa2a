/* Groups by a hash: `packed_groups(kinds, key …, value …)` is an aggregate of all rows of a statement,
   and gives its groups as rows for `packed_rows`.

   SQLite sorts rows to find their groups, which costs five times as much as to read them. Here is one
   step for each row, and memory for each group. What does not fit, and what SQLite would treat with
   more care (a sum past its range, values of several types), is left to SQLite: the statement ends
   with `LEFT`, and is asked again as it was written (`storage/readers.py`). */

#include "batch.h"
#include "packing.h"
#include "twins.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define sqlite decimal_sqlite
#define UTF8 1
#define MOST_COLUMNS 100
#define MOST_BYTES ((size_t)16 << 20) /* of all groups of one statement */
#define BLOCK ((size_t)64 << 10)
#define SUM_BYTES 512 /* about what a sum of DECIMAL holds */

static const char LEFT[] = "groups are left to SQLite";

/* Kinds of columns, as the first argument spells them. */
enum { KEY = 'k', ROWS = 'a', COUNT = 'c', WHOLES = 'i', REALS = 'r', LEAST = 'l', GREATEST = 'g' };
enum { DECIMALS = 'n', SHOWN_DECIMALS = 'z' };

typedef struct {
    int64_t count; /* of values that are not NULL */
    union {
        int64_t whole;
        double real;
        uint8_t *bytes;
        Sum *sum;
    } value;
    double rest; /* what was lost by adding up reals */
    uint32_t length;
    int type; /* of the least or the greatest one */
} State;

typedef struct Group {
    struct Group *next; /* in the order in which they came */
    uint64_t hash;
    size_t key_length;
    State states[]; /* and behind them the key, packed */
} Group;

typedef struct Block {
    struct Block *before;
    size_t used, room;
    uint8_t data[];
} Block;

typedef struct {
    char kinds[MOST_COLUMNS + 1];
    int is_begun, keys, values; /* how many columns of both sorts */
    Group **slots; /* a power of two of them */
    size_t room, count;
    Group *first, *last;
    Block *block;
    size_t bytes; /* of everything */
    uint8_t *key; /* of the row that is looked at */
    size_t key_room;
    uint64_t secret[2]; /* or a client could choose keys that all fall on one place */
    int is_refused;
} Table;

static uint64_t folded(uint64_t a, uint64_t b)
{
    Wide product = (Wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const Table *table, size_t length)
{
    const uint8_t *key = table->key;
    uint64_t hash = table->secret[0] ^ length, part = 0;
    for (; length >= 8; key += 8, length -= 8) {
        memcpy(&part, key, 8);
        hash = folded(hash ^ part, table->secret[1]);
    }
    part = 0;
    memcpy(&part, key, length);
    return folded(hash ^ part, table->secret[1]);
}

/* --- memory ----------------------------------------------------------------------------------- */

static int counts(Table *table, size_t more)
{
    table->bytes += more;
    return table->bytes <= MOST_BYTES;
}

static void *taken(Table *table, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (!table->block || table->block->room - table->block->used < size) {
        size_t room = size > BLOCK ? size : BLOCK;
        Block *block = malloc(sizeof *block + room);
        if (!block)
            return NULL;
        *block = (Block){table->block, 0, room};
        table->block = block;
        table->bytes += room;
    }
    void *found = table->block->data + table->block->used;
    table->block->used += size;
    return found;
}

static int grow(Table *table)
{
    size_t room = table->room ? table->room * 2 : 256;
    Group **slots = calloc(room, sizeof *slots);
    if (!slots)
        return 0;
    for (Group *group = table->first; group; group = group->next) {
        size_t at = group->hash & (room - 1);
        while (slots[at])
            at = (at + 1) & (room - 1);
        slots[at] = group;
    }
    table->bytes += (room - table->room) * sizeof *slots;
    free(table->slots);
    table->slots = slots;
    table->room = room;
    return 1;
}

static void forget(Table *table)
{
    for (Group *group = table->first; group; group = group->next)
        for (int at = 0; at < table->values; at++) {
            State *state = &group->states[at];
            char kind = table->kinds[table->keys + at];
            if (kind == DECIMALS || kind == SHOWN_DECIMALS)
                sum_free(state->value.sum);
            else if ((kind == LEAST || kind == GREATEST) && state->type >= SQLITE_TEXT)
                free(state->value.bytes);
        }
    for (Block *block = table->block; block;) {
        Block *before = block->before;
        free(block);
        block = before;
    }
    free(table->slots);
    free(table->key);
    memset(table, 0, sizeof *table);
}

/* --- keys ------------------------------------------------------------------------------------- */

/* Its length; 0: there is no memory; -1: it is left to SQLite. */
static int64_t packed_key(Table *table, sqlite3_value **values)
{
    size_t length = 0;
    for (int at = 0; at < table->keys; at++) {
        int type = sqlite->value_type(values[at]);
        const uint8_t *bytes = NULL;
        size_t size = 0;
        if (type == SQLITE_FLOAT)
            return -1;
        if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
            bytes = type == SQLITE_TEXT ? sqlite->value_text(values[at]) : sqlite->value_blob(values[at]);
            size = (size_t)sqlite->value_bytes(values[at]);
            if (!bytes && size)
                return 0;
        }
        if (length + size + PACKED_MOST > table->key_room) {
            size_t room = (length + size + PACKED_MOST) * 2;
            uint8_t *larger = realloc(table->key, room);
            if (!larger)
                return 0;
            if (!counts(table, room - table->key_room))
                return -1;
            table->key = larger;
            table->key_room = room;
        }
        uint8_t *to = table->key + length;
        if (type == SQLITE_NULL)
            *to = 0xc0, to++;
        else if (type == SQLITE_INTEGER)
            to = pack_integer(to, sqlite->value_int64(values[at]));
        else
            to = pack_bytes(to, size ? bytes : (const uint8_t *)"", (uint32_t)size, type == SQLITE_TEXT);
        length = (size_t)(to - table->key);
    }
    return (int64_t)length;
}

static uint8_t *key_of(const Table *table, Group *group)
{
    return (uint8_t *)&group->states[table->values];
}

/* The group of a key, which may be new; NULL: there is no memory. */
static Group *group_of(Table *table, size_t length)
{
    uint64_t hash = hash_of(table, length);
    if (table->count * 10 >= table->room * 7 && !grow(table))
        return NULL;
    size_t at = hash & (table->room - 1);
    for (Group *group; (group = table->slots[at]); at = (at + 1) & (table->room - 1))
        if (group->hash == hash && group->key_length == length &&
            !memcmp(key_of(table, group), table->key, length))
            return group;
    size_t states = (size_t)table->values * sizeof(State);
    Group *group = taken(table, sizeof *group + states + length);
    if (!group)
        return NULL;
    memset(group, 0, sizeof *group + states);
    group->hash = hash;
    group->key_length = length;
    memcpy(key_of(table, group), table->key, length);
    if (table->last)
        table->last->next = group;
    else
        table->first = group;
    table->last = group;
    table->slots[at] = group;
    table->count++;
    return group;
}

/* --- values ----------------------------------------------------------------------------------- */

enum { DONE = 0, IS_LEFT = 1, NO_MEMORY_LEFT = 2 };

static int add_real(State *state, double more)
{
    double sum = state->value.real, next = sum + more;
    state->rest += fabs(sum) >= fabs(more) ? sum - next + more : more - next + sum;
    state->value.real = next;
    return DONE;
}

static int keep_bytes(Table *table, State *state, const void *bytes, uint32_t length)
{
    if (length > state->length || !state->value.bytes) {
        uint8_t *larger = realloc(state->value.bytes, (size_t)length + 1);
        if (!larger)
            return NO_MEMORY_LEFT;
        state->value.bytes = larger;
        if (!counts(table, length + 1))
            return IS_LEFT;
    }
    if (length)
        memcpy(state->value.bytes, bytes, length);
    state->length = length;
    return DONE;
}

/* Below 0, 0 or above: how two texts stand to each other. */
static int compared(const void *a, size_t a_length, const void *b, size_t b_length)
{
    size_t shorter = a_length < b_length ? a_length : b_length;
    int order = shorter ? memcmp(a, b, shorter) : 0;
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int take_extreme(Table *table, State *state, sqlite3_value *value, int type, int sign)
{
    int is_first = !state->count;
    if (!is_first && type != state->type)
        return IS_LEFT;
    if (type == SQLITE_INTEGER) {
        int64_t given = sqlite->value_int64(value);
        if (is_first || (sign < 0 ? given < state->value.whole : given > state->value.whole))
            state->value.whole = given;
    } else if (type == SQLITE_FLOAT) {
        double given = sqlite->value_double(value);
        if (is_first || (sign < 0 ? given < state->value.real : given > state->value.real))
            state->value.real = given;
    } else {
        const void *given = type == SQLITE_TEXT ? (const void *)sqlite->value_text(value)
                                                : sqlite->value_blob(value);
        uint32_t length = (uint32_t)sqlite->value_bytes(value);
        if (!given && length)
            return NO_MEMORY_LEFT;
        state->type = type; /* from here on its bytes are freed */
        if (is_first || compared(given, length, state->value.bytes, state->length) * sign > 0)
            return keep_bytes(table, state, given, length);
    }
    state->type = type;
    return DONE;
}

static int take_value(Table *table, State *state, char kind, sqlite3_value *value)
{
    int type = sqlite->value_type(value), said = DONE;
    if (type == SQLITE_NULL)
        return DONE;
    switch (kind) {
    case COUNT: break;
    case WHOLES:
        if (type != SQLITE_INTEGER ||
            __builtin_add_overflow(state->value.whole, sqlite->value_int64(value),
                                   &state->value.whole))
            return IS_LEFT;
        break;
    case REALS:
        if (type != SQLITE_FLOAT)
            return IS_LEFT;
        said = add_real(state, sqlite->value_double(value));
        break;
    case DECIMALS: case SHOWN_DECIMALS:
        if (!state->value.sum && !(state->value.sum = sum_new()))
            return NO_MEMORY_LEFT;
        if (!state->count && !counts(table, SUM_BYTES))
            return IS_LEFT;
        if (!sum_add(state->value.sum, value))
            return IS_LEFT;
        break;
    default: said = take_extreme(table, state, value, type, kind == LEAST ? -1 : 1);
    }
    state->count++;
    return said;
}

/* --- SQLite's calls --------------------------------------------------------------------------- */

static int begin(Table *table, int count, sqlite3_value **values)
{
    const char *kinds = (const char *)sqlite->value_text(values[0]);
    size_t length = kinds ? strlen(kinds) : 0;
    int arguments = 1;
    if (!length || length > MOST_COLUMNS)
        return 0;
    if (getrandom(table->secret, sizeof table->secret, 0) != (ssize_t)sizeof table->secret)
        return 0;
    table->secret[1] |= 1;
    memcpy(table->kinds, kinds, length + 1);
    while (table->kinds[table->keys] == KEY)
        table->keys++;
    table->values = (int)length - table->keys;
    for (size_t at = 0; at < length; at++)
        arguments += table->kinds[at] != ROWS;
    table->is_begun = arguments == count && table->keys > 0;
    return table->is_begun;
}

static void refuse(sqlite3_context *context, int is_left)
{
    if (is_left)
        sqlite->result_error(context, LEFT, -1);
    else
        sqlite->result_error_code(context, SQLITE_NOMEM);
}

static void step(sqlite3_context *context, int count, sqlite3_value **values)
{
    Table *table = sqlite->aggregate_context(context, sizeof *table);
    if (!table || (!table->is_begun && (count < 1 || !begin(table, count, values)))) {
        refuse(context, table != NULL);
        return;
    }
    int64_t length = packed_key(table, values + 1);
    Group *group = length > 0 ? group_of(table, (size_t)length) : NULL;
    int said = length < 0 ? IS_LEFT : group ? DONE : NO_MEMORY_LEFT;
    sqlite3_value **next = values + 1 + table->keys;
    for (int at = 0; said == DONE && at < table->values; at++) {
        char kind = table->kinds[table->keys + at];
        if (kind == ROWS)
            group->states[at].count++;
        else
            said = take_value(table, &group->states[at], kind, *next++);
    }
    if (said == DONE && table->bytes > MOST_BYTES)
        said = IS_LEFT;
    if (said != DONE) {
        table->is_refused = 1;
        refuse(context, said == IS_LEFT);
    }
}

/* Bytes that a value may take when it is packed. */
static size_t most_bytes(char kind, const State *state)
{
    if ((kind == LEAST || kind == GREATEST) && state->type >= SQLITE_TEXT)
        return PACKED_MOST + state->length;
    return PACKED_MOST + (kind == DECIMALS || kind == SHOWN_DECIMALS ? ENCODED_MOST : 0);
}

static uint8_t *packed_value(uint8_t *to, char kind, const State *state)
{
    uint8_t bytes[ENCODED_MOST];
    if (kind == ROWS || kind == COUNT)
        return pack_integer(to, state->count);
    if (!state->count)
        return *to = 0xc0, to + 1;
    switch (kind) {
    case WHOLES: return pack_integer(to, state->value.whole);
    case REALS: {
        double whole = state->value.real + state->rest;
        return pack_double(to, isfinite(state->rest) ? whole : state->value.real);
    }
    case DECIMALS: case SHOWN_DECIMALS: {
        size_t length = sum_put(state->value.sum, kind == SHOWN_DECIMALS, bytes);
        return pack_bytes(to, bytes, (uint32_t)length, 0);
    }
    default: break;
    }
    if (state->type == SQLITE_INTEGER)
        return pack_integer(to, state->value.whole);
    if (state->type == SQLITE_FLOAT)
        return pack_double(to, state->value.real);
    return pack_bytes(to, state->value.bytes, state->length, state->type == SQLITE_TEXT);
}

static uint8_t *packed_table(const Table *table, size_t *length)
{
    size_t size = 1;
    const char *kinds = table->kinds + table->keys;
    for (Group *group = table->first; group; group = group->next) {
        size += PACKED_MOST + group->key_length;
        for (int at = 0; at < table->values; at++)
            size += most_bytes(kinds[at], &group->states[at]);
    }
    uint8_t *out = malloc(size), *to = out;
    if (!out)
        return NULL;
    for (Group *group = table->first; group; group = group->next) {
        to = pack_head(to, (uint32_t)(table->keys + table->values));
        memcpy(to, key_of(table, group), group->key_length);
        to += group->key_length;
        for (int at = 0; at < table->values; at++)
            to = packed_value(to, kinds[at], &group->states[at]);
    }
    *length = (size_t)(to - out);
    return out;
}

/* Called once in any case, also when the statement has ended with an error. */
static void end(sqlite3_context *context)
{
    Table *table = sqlite->aggregate_context(context, 0);
    size_t length;
    if (!table || !table->is_begun) {
        sqlite->result_null(context);
        return;
    }
    uint8_t *out = table->is_refused ? NULL : packed_table(table, &length);
    if (out)
        sqlite->result_blob(context, out, (int)length, free);
    else if (!table->is_refused)
        refuse(context, 0);
    forget(table);
}

int packed_groups(sqlite3 *db)
{
    return sqlite->create_window(db, "packed_groups", -1, UTF8, NULL, step, end, NULL, NULL, NULL);
}
