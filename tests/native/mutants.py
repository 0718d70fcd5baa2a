"""The compiled part with one rule taken out at a time; each is built with the sanitizers.

`python -m tests.replication.run_mutants C:` plants them.
"""

from __future__ import annotations

BATCH, COLUMNS, COPY = "native/batch.c", "native/columns_in.c", "native/copy_in.c"
FIELDS, FUNCTIONS, KEYS = "native/fields.c", "native/functions.c", "native/keys.c"
PACKED, PACKING, REALS = "native/packed_rows.c", "native/packing.h", "native/reals.c"
OUT, UTF8, UNPACKING = "native/rows_out.c", "native/utf8.h", "native/unpacking.h"
QUERY, PIECES = "native/packed_out.c", "native/packed_pieces.c"
READ, POINT, NEW = "native/point_read.c", "native/point_bind.c", "native/point_insert.c"
LINES, HOSTILE = "tests/native/test_lines.py", "tests/native/test_hostile.py"
ROWS, MESSAGES = "tests/native/test_packed_rows.py", "tests/native/test_messages.py"
ONE_ROW, NEW_ROW = "tests/native/test_point_reads.py", "tests/native/test_point_inserts.py"
READ_ROWS = "tests/native/test_packed_out.py"
DECIMALS, OF_DECIMALS = "native/decimals.c", "native/decimal_functions.c"
TOTALS, NUMBERS = "native/decimal_sums.c", "tests/native/test_decimals.py"
TIMES, LIKES, TWINS = "native/times.c", "native/likes.c", "tests/native/test_twins.py"
SHOWN, TOLD = "native/shown.c", "native/packed_messages.c"
TELLING = "tests/native/test_packed_messages.py"
GROUPS, OF_GROUPS = "native/groups.c", "tests/native/test_groups.py"
TEXTS = "native/texts.c"
JSON, OF_JSON = "native/json.c", "tests/native/test_json.py"
OF_PIECES = "tests/native/test_packed_pieces.py"
SUMS, STREAMS = "tests/native/test_functions.py", "tests/native/test_columns.py"

#: (rule, name, file, old, new, test)
OF_C: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("C", "C: JSON: a name that stands twice is told twice", JSON),
        *("if (is_same(names[other], name))", "if (0)"),
        OF_JSON,
    ),
    (
        *("C", "C: JSON: an escape is told as it is written", JSON),
        *("if (*at == '\\\\' || *at < 0x20", "if (*at < 0x20"),
        OF_JSON,
    ),
    (
        *("C", "C: JSON: what stands behind the value does not matter", JSON),
        *(
            "return at + 1 == reader->end;\n        if (*at++ != ',')",
            "return 1;\n        if (*at++ != ',')",
        ),
        OF_JSON,
    ),
    (
        *("C", "C: JSON: a number may begin with zeros", JSON),
        *("(*digits == '0' && (end - digits > 1 || is_negative))", "0"),
        OF_JSON,
    ),
    (
        *("C", "C: JSON: the part behind the last mark is none", TEXTS),
        *("place > 1 ? 0 :", "place > 0 && found == end ? 0 :"),
        OF_JSON,
    ),
    (
        *("C", "C: the last rows of a piece are lost", PIECES),
        *("cursor->is_over = !cursor->out.rows;", "cursor->is_over = !cursor->from;"),
        OF_PIECES,
    ),
    (
        *("C", "C: a statement that failed ends well", PIECES),
        *("state == SQLITE_DONE ? SQLITE_OK", "state ? SQLITE_OK"),
        OF_PIECES,
    ),
    (
        *("C", "C: packed values of a statement are not kept", PIECES),
        *("memcpy(cursor->given, given, (size_t)size);", "cursor->given = (uint8_t *)given;"),
        OF_PIECES,
    ),
    (
        *("C", "C: a statement may have any number of columns", PIECES),
        *("cursor->columns > COLUMNS_MOST", "cursor->columns > 1000000"),
        OF_PIECES,
    ),
    (
        *("C", "C: a number of twenty digits wraps", FIELDS),
        *("end - text > DIGITS_MOST + 1", "end - text > DIGITS_MOST + 2"),
        LINES,
    ),
    (
        *("C", "C: a NULL in a required column is taken", FIELDS),
        *("return column->required ? NULL : to + 1;", "return to + 1;"),
        LINES,
    ),
    (
        *("C", "C: a byte of a key is hashed twice", KEYS),
        *("(uint32_t)key[at + 3] << 24", "(uint32_t)key[at + 2] << 24"),
        LINES,
    ),
    (
        *("C", "C: the sign of a byte is lost", PACKING),
        *("value >= -0x80)", "value >= -0x81)"),
        LINES,
    ),
    (
        *("C", "C: the last row of a stream is lost", COLUMNS),
        *("row < last;", "row + 1 < last;"),
        STREAMS,
    ),
    (
        *("C", "C: an escape is not undone", COPY),
        *("case 't': *to++ = '\\t'; break;", "case 't': *to++ = 't'; break;"),
        LINES,
    ),
    (
        *("C", "C: any bucket is counted", BATCH),
        *("if (batch->buckets[at] > bucket_count) {", "if (0) {"),
        ROWS,
    ),
    (
        *("C", "C: a value may end a byte behind the end", UNPACKING),
        *(
            "(uint64_t)(end - at) >= (uint64_t)head + body",
            "(uint64_t)(end - at) + 1 >= (uint64_t)head + body",
        ),
        ROWS,
    ),
    (
        *("C", "C: a head is as long as it says", OUT),
        *("size > (uint64_t)(end - begun) || size", "size"),
        HOSTILE,
    ),
    (
        *("C", "C: a value of a record ends where it says", OUT),
        *("if (!at || size_of(found[number].type) > (uint64_t)(end - body))", "if (!at)"),
        HOSTILE,
    ),
    (
        *("C", "C: an escape inside of quotes is not escaped", OUT),
        *("text[at] == plan->quote || text[at] == plan->escape", "text[at] == plan->quote"),
        MESSAGES,
    ),
    (
        *("C", "C: the zeros of a whole number are dropped", REALS),
        *("while (after > 0 && digits % 10 == 0)", "while (digits % 10 == 0)"),
        MESSAGES,
    ),
    (
        *("C", "C: a subtraction wraps", FUNCTIONS),
        *(
            "int is_outside = __builtin_sub_overflow(a[0], a[1], &found);",
            "int is_outside = 0; found = (int64_t)((uint64_t)a[0] - (uint64_t)a[1]);",
        ),
        SUMS,
    ),
    (
        *("C", "C: a product that vanishes is nought", FUNCTIONS),
        *("if (found == 0 && a[0] != 0 && a[1] != 0)", "if (0)"),
        SUMS,
    ),
    (
        *("C", "C: the first number that is too large fits", FUNCTIONS),
        *("found < 9223372036854775808.0;", "found <= 9223372036854775808.0;"),
        SUMS,
    ),
    (
        *("C", "C: a text is counted as a number", FUNCTIONS),
        *("if (sqlite->value_type(values[at]) != SQLITE_INTEGER)", "if (0)"),
        SUMS,
    ),
    (
        *("C", "C: half of a pair is UTF-8", UTF8),
        *("(*at == 0xed && at[1] > 0x9f) ||", "0 ||"),
        ROWS,
    ),
    (
        *("C", "C: lines of any bytes are texts", COPY),
        *("if (!next || !is_utf8(at, (size_t)(next - at)))", "if (!next)"),
        LINES,
    ),
    (
        *("C", "C: every hundredth year is a leap year", FIELDS),
        *("(year % 100 != 0 || year % 400 == 0)", "1"),
        LINES,
    ),
    (
        *("C", "C: zones to the east are in the west", FIELDS),
        *("*at == '-' ? 1 : -1", "*at == '-' ? -1 : 1"),
        LINES,
    ),
    (
        *("C", "C: bytes are counted as characters", FIELDS),
        *("characters += (field.text[at] & 0xc0) != 0x80;", "characters++;"),
        LINES,
    ),
    (
        *("C", "C: there is room for the text alone", COPY),
        *(
            "size_t most = (size_t)(next - at) + (size_t)(plan->width + 2) * PACKED_MOST + 36;",
            "size_t most = (size_t)(next - at);",
        ),
        LINES,
    ),
    (
        *("C", "C: half the room for what is unescaped", COPY),
        *(
            "if (!batch_scratch(batch, (size_t)(end - at)))",
            "if (!batch_scratch(batch, (size_t)(end - at) / 2))",
        ),
        HOSTILE,
    ),
    (
        *("C", "C: a number beyond SQLite's is taken", UNPACKING),
        *("return end - at > 1 && at[1] < 0x80;", "return 1;"),
        ROWS,
    ),
    (
        *("C", "C: NULLs of a slice are those of the whole", COLUMNS),
        *("!is_there(column, at))", "!is_there(column, at - column->offset))"),
        HOSTILE,
    ),
    (
        *("C", "C: one row more than there is room for", BATCH),
        *("if (batch->rows < room)", "if (batch->rows <= room)"),
        ROWS,
    ),
    (
        *("C", "C: more columns than there are places", PACKED),
        *(" || cursor->wanted > WIDTH", ""),
        ROWS,
    ),
    (
        *("C", "C: memory that is not there is used", BATCH),
        *("    if (!found)\n        return 0;\n", ""),
        HOSTILE,
    ),
    (
        *("C", "C: a copy that was not made is read", PACKED),
        *("        if (!cursor->data)\n            return SQLITE_NOMEM;\n", ""),
        HOSTILE,
    ),
    (
        *("C", "C: a key of several parts is as long as it likes", COPY),
        *("if (!to || to - key > KEY_MOST)", "if (!to)"),
        LINES,
    ),
    (
        *("C", "C: a place among columns is believed", OUT),
        *("starts[row] < 0 || (uint64_t)starts[row] >= length ||", ""),
        HOSTILE,
    ),
    (
        *("C", "C: a parameter may be longer than its message", POINT),
        *("size > end - at)", "size > end - at + 64)"),
        ONE_ROW,
    ),
    (
        *("C", "C: a missing part of a key is hashed as a zero", POINT),
        *("*to++ = 0xc0;", "*to++ = 0;"),
        ONE_ROW,
    ),
    (
        *("C", "C: a zero byte is part of a text", POINT),
        *("return !memchr(at, 0, length) && is_utf8(at, length);", "return is_utf8(at, length);"),
        ONE_ROW,
    ),
    (
        *("C", "C: a number in digits is any number", POINT),
        *("size == 8 ? 18", "size == 8 ? 20"),
        ONE_ROW,
    ),
    (
        *("C", "C: nobody is told the columns", POINT),
        *("point->is_described = rest == ALL;", "point->is_described = 0;"),
        ONE_ROW,
    ),
    (
        *("C", "C: whatever is asked behind a Bind is answered", POINT),
        *("if (memcmp(data + end, ASKED + (ALL - rest), rest))", "if (0)"),
        ONE_ROW,
    ),
    (
        *("C", "C: the wanted formats are not looked at", POINT),
        *(" || memcmp(data + at, point->formats, end - at))", ")"),
        ONE_ROW,
    ),
    (
        *("C", "C: a reading is not ended", READ),
        *(
            "    point_sqlite->reset(plan->point.statement);\n",
            "    if (rows < 0)\n        point_sqlite->reset(plan->point.statement);\n",
        ),
        ONE_ROW,
    ),
    (
        *("C", "C: a row is looked for in another bucket", POINT),
        *("at + 1, point->bucket);", "at + 1, point->bucket + 1);"),
        ONE_ROW,
    ),
    (
        *("C", "C: a parameter in binary has no sign", POINT),
        *("int64_t found = (int8_t)at[0];", "int64_t found = at[0];"),
        ONE_ROW,
    ),
    (
        *("C", "C: a parameter in digits has no sign", POINT),
        *("is_negative ? -found : found", "found"),
        ONE_ROW,
    ),
    (
        *("C", "C: a long key is written behind the end", POINT),
        *("> KEY_MOST)\n            return 0;", "> 8 * KEY_MOST)\n            return 0;"),
        ONE_ROW,
    ),
    (
        *("C", "C: a real that is no number is stored", POINT),
        *("return found - found == 0 && ", "return "),
        NEW_ROW,
    ),
    (
        *("C", "C: a time has any year", POINT),
        *("if (*number < -999 * year || *number > 7998 * year)", "if (0)"),
        NEW_ROW,
    ),
    (
        *("C", "C: any byte is a truth", POINT),
        *("return *number < 2;", "return 1;"),
        NEW_ROW,
    ),
    (
        *("C", "C: a row that was there is told to replicas as new", NEW),
        *("if (!point_sqlite->changes(db))", "if (0)"),
        NEW_ROW,
    ),
    (
        *("C", "C: a row that is refused is told to replicas", NEW),
        *("if (state != SQLITE_DONE)", "if (0)"),
        NEW_ROW,
    ),
    (
        *("C", "C: a row without its record is as good as another", NEW),
        *("return plan->state == SQLITE_DONE ? 1 : RECORD_LOST;", "return 1;"),
        NEW_ROW,
    ),
    (
        *("C", "C: replicas get NULL for a missing value only by luck", NEW),
        *("*to++ = NIL;", "*to++ = 0;"),
        NEW_ROW,
    ),
    (
        *("C", "C: a record has another bucket than its row", NEW),
        *("plan->point.bucket);", "plan->point.bucket + 1);"),
        NEW_ROW,
    ),
    (
        *("C", "C: a record is written behind its room", NEW),
        *("batch_reserve(out, length + PACKED_MOST)", "batch_reserve(out, 1)"),
        NEW_ROW,
    ),
    (
        *("C", "C: rows of a query end with one too many", QUERY),
        *("out->rows < most_rows &&", "out->rows <= most_rows &&"),
        READ_ROWS,
    ),
    (
        *("C", "C: rows of a query have no end in bytes", QUERY),
        *(" && *counted <= most_bytes)", ")"),
        READ_ROWS,
    ),
    (
        *("C", "C: a query that failed ends like one that is over", QUERY),
        *("if (stepped == SQLITE_DONE)", "if (stepped != SQLITE_ROW)"),
        READ_ROWS,
    ),
    (
        *("C", "C: a row has no room for its texts", QUERY),
        *("batch_reserve(out, *length + size + PACKED_MOST)", "batch_reserve(out, *length)"),
        READ_ROWS,
    ),
    (
        *("C", "C: bytes of a query become a text", QUERY),
        *("(uint32_t)size, type == SQLITE_TEXT)", "(uint32_t)size, 1)"),
        READ_ROWS,
    ),
    (
        *("C", "C: an argument that is no value is left out", QUERY),
        *(
            "        if (!next)\n            return 0;\n",
            "        if (!next)\n            return 1;\n",
        ),
        READ_ROWS,
    ),
    (
        *("C", "C: a DECIMAL of 39 digits wraps", DECIMALS),
        *("|| count + more > MOST_DIGITS)", "|| count + more > MOST_DIGITS + 1)"),
        NUMBERS,
    ),
    (
        *("C", "C: a DECIMAL has room for more digits than there are bits", OF_DECIMALS),
        *("    if (number->digits > (ten_to(MOST_DIGITS) - 1) / power)\n        return 0;\n", ""),
        NUMBERS,
    ),
    (
        *("C", "C: half of a quotient goes to zero", OF_DECIMALS),
        *(
            "quotient->digits += rest >= b.digits - rest;",
            "quotient->digits += rest > b.digits - rest;",
        ),
        NUMBERS,
    ),
    (
        *("C", "C: a product forgets that it wrapped", OF_DECIMALS),
        *(
            "!__builtin_mul_overflow(a.digits, b.digits, &product->digits);",
            "(product->digits = a.digits * b.digits, 1);",
        ),
        NUMBERS,
    ),
    (
        *("C", "C: floor of a negative DECIMAL goes to zero", OF_DECIMALS),
        *("(rounding == TO_FLOOR && number.is_negative)", "0"),
        NUMBERS,
    ),
    (
        *("C", "C: a sum below zero gets more digits as if it were none", TOTALS),
        *(
            "        if (is_negative)\n            negate(sum->total);\n        multiply",
            "        multiply",
        ),
        NUMBERS,
    ),
    (
        *("C", "C: what left a frame keeps its zeros in the sum", TOTALS),
        *("sum->scales[scale] += change;", "sum->scales[scale] += 1;"),
        NUMBERS,
    ),
    (
        *("C", "C: a sum forgets what Python added up", TOTALS),
        *("    if (!sum->rest) {\n", "    if (1) {\n"),
        NUMBERS,
    ),
    (
        *("C", "C: a time before 1970 is of the next day", TIMES),
        *("return value / size - (value % size < 0);", "return value / size;"),
        TWINS,
    ),
    (
        *("C", "C: the 31st stays the 31st in a shorter month", TIMES),
        *("moment.of_month < last ? moment.of_month : last", "moment.of_month"),
        TWINS,
    ),
    (
        *("C", "C: a week belongs to the year of its Wednesday", TIMES),
        *("moment->day + 4 - weekday", "moment->day + 3 - weekday"),
        TWINS,
    ),
    (
        *("C", "C: LIKE goes on in the middle of a character", LIKES),
        *("text.at = tried = after_character(tried, text.end);", "text.at = ++tried;"),
        TWINS,
    ),
    (
        *("C", "C: ILIKE knows the letters of ASCII only", LIKES),
        *("(!ignores_case || (is_ascii(text) && is_ascii(pattern)))", "1"),
        TWINS,
    ),
    (
        *("C", "C: a DECIMAL below one has no zero before its point", SHOWN),
        *("    if (whole <= 0)\n        *to++ = '0';\n", ""),
        TELLING,
    ),
    (
        *("C", "C: a fraction of a second keeps its zeros", SHOWN),
        *("while (to[-1] == '0')", "while (0)"),
        TELLING,
    ),
    (
        *("C", "C: a text has no room in its message", TOLD),
        *("*used + size + SHOWN_MOST + 16", "*used + SHOWN_MOST + 16"),
        TELLING,
    ),
    (
        *("C", "C: keys whose hashes are nearly equal are one group", GROUPS),
        "if (group->hash == hash && group->key_length == length &&",
        "if (((group->hash ^ hash) & 7) == 0 ||",
        OF_GROUPS,
    ),
    (
        *("C", "C: a table of groups that grows forgets some", GROUPS),
        "while (slots[at])\n            at = (at + 1) & (room - 1);\n        slots[at] = group;",
        "slots[at] = group;",
        OF_GROUPS,
    ),
    (
        *("C", "C: a sum of a group wraps around", GROUPS),
        "__builtin_add_overflow(state->value.whole, sqlite->value_int64(value),",
        "0 && __builtin_add_overflow(state->value.whole, sqlite->value_int64(value),",
        OF_GROUPS,
    ),
    (
        *("C", "C: what adding reals loses is forgotten", GROUPS),
        "state->rest += fabs(sum) >= fabs(more) ? sum - next + more : more - next + sum;",
        "state->rest = 0;",
        OF_GROUPS,
    ),
    (
        *("C", "C: the least text is the shortest", GROUPS),
        "return order ? order : (a_length > b_length) - (a_length < b_length);",
        "return (a_length > b_length) - (a_length < b_length);",
        OF_GROUPS,
    ),
    (
        *("C", "C: the length of a kept text is not kept", GROUPS),
        "    state->length = length;\n    return DONE;",
        "    return DONE;",
        OF_GROUPS,
    ),
    (
        *("C", "C: groups have no limit of memory", GROUPS),
        "if (said == DONE && table->bytes > MOST_BYTES)",
        "if (0)",
        OF_GROUPS,
    ),
    (
        *("C", "C: a group without values has the sum 0", GROUPS),
        "    if (!state->count)\n        return *to = 0xc0, to + 1;",
        "    if (!state->count && kind == LEAST)\n        return *to = 0xc0, to + 1;",
        OF_GROUPS,
    ),
)
