/* Rows of a statement of SQLite, one after the other, as MessagePack. */

#ifndef CAIRN_PACKED_OUT_H
#define CAIRN_PACKED_OUT_H

#include "batch.h"
#include "sqlite_abi.h"

/* Gives the statement packed values, one for each parameter; they must outlive it. 0: it does not take them. */
int packed_bind(sqlite3_stmt *to, const uint8_t *given, const uint8_t *end);

/* The row that the statement stands at, to the end of `out`; 0: there is no memory. */
int packed_put_row(Batch *out, sqlite3_stmt *from, int columns, uint64_t *counted);

/* Lets a connection have `packed_pieces`. */
int packed_pieces_offered(sqlite3 *db, const sqlite3_api *api);

#endif
