/* A time by the calendar. */

#ifndef CAIRN_TIMES_H
#define CAIRN_TIMES_H

#include <stdint.h>

#define SECOND 1000000LL
#define DAY (86400 * SECOND)

typedef struct {
    int64_t day;    /* since 1970 */
    int64_t micros; /* of it */
    int year, month, of_month;
} Moment;

/* Microseconds since 1970; 0: it is not in the years 1 to 9999. */
int moment_of(int64_t micros, Moment *found);

#endif
