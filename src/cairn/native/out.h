/* How the columns of an answer are written. */

#ifndef CAIRN_OUT_H
#define CAIRN_OUT_H

#include "shown.h"

#include <stddef.h>
#include <stdint.h>

#define NULL_LENGTH 0xffffffffu

enum { WHOLE = 0, REAL = 1, TEXTS = 2, TRUTH = 3, GIVEN = 4, NUMBER = 5, MOMENT = 6, ZONED = 7, DATE = 8,
       UUID = 9 };

typedef struct {
    int32_t kind;
    int32_t place;     /* among the columns of a record */
    int32_t binary;    /* 0: as text; else of a whole number how many bytes it has */
    int32_t scale;     /* digits that a DECIMAL has behind its point at least */
    const uint8_t *valid; /* of a column that somebody else has written: as Arrow has it */
    const uint8_t *bytes;
    const int32_t *places;
    int64_t offset;
} OutColumn;

typedef struct {
    int32_t is_line; /* else a row as in DataRow, */
    int32_t label;   /* and the letter that its message has */
    int32_t is_csv;
    int32_t delimiter, quote, escape;
    const uint8_t *null;
    int32_t null_length;
    int32_t columns;
    OutColumn *column;
    uint8_t care[256]; /* what a byte needs in a line: 0 nothing, 1 quotes, else a letter behind `\` */
} OutPlan;

#endif
