/* Stored values of other types than numbers and texts as clients are told them. */

#ifndef CAIRN_SHOWN_H
#define CAIRN_SHOWN_H

#include <stddef.h>
#include <stdint.h>

#define SHOWN_MOST 320 /* bytes that one may need */

/* Each writes at `to` and gives the place behind; NULL: it is none of the usual ones. */
uint8_t *put_shown_decimal(uint8_t *to, const uint8_t *data, size_t length, int scale);
uint8_t *put_moment(uint8_t *to, int64_t micros, int has_zone);
uint8_t *put_date(uint8_t *to, int64_t micros);
uint8_t *put_uuid(uint8_t *to, const uint8_t *data, size_t length);

/* The same in binary form. */
uint8_t *put_moment_binary(uint8_t *to, int64_t micros);
uint8_t *put_date_binary(uint8_t *to, int64_t micros);

#endif
