"""A SELECT by columns: byte for byte the messages that the encoder of rows makes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from cairn.model.types.row_shape import RowShape
from cairn.model.types.values import ColumnType
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.server.scan.data_rows import MessagesEncoder
from cairn.server.scan.statement import SAMPLED, Scan
from tests.spark.test_scan_lines import ARROW, stored_value


@pytest.mark.parametrize("piece_bytes", [1, 500, 10**6])
def test_columns_become_the_messages_that_rows_become(piece_bytes: int) -> None:
    chance = random.Random(piece_bytes)
    for count in (1, 1, 2, 3, 7, 7, 7):
        types = tuple(chance.choices(list(ARROW), k=count))
        formats = tuple(chance.randint(0, 1) for _ in types)
        scales = tuple(2 if type_ is ColumnType.DECIMAL else None for type_ in types)
        rows = [tuple(stored_value(chance, type_) for type_ in types) for _ in range(200)]
        columns = [
            pa.array(values, ARROW[type_])
            for values, type_ in zip(zip(*rows, strict=True), types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(count)])
        shape = RowShape(types, scales, formats)
        pieces = list(MessagesEncoder(shape, piece_bytes).encode_batch(batch))
        encode, at = rows_encoder(shape), 0
        for told, data in pieces:
            assert told > 0
            assert bytes(data) == encode(rows[at : at + told]), (types, formats)
            assert told == 1 or len(data) <= piece_bytes
            at += told
        assert at == len(rows)


def test_the_number_of_rows_is_guessed_from_the_first_buckets() -> None:
    assert Scan.guess(None, 0, ((1, 3000),)) == 0
    assert Scan.guess(17, SAMPLED - 1, ((1, 3000),)) == SAMPLED - 1  # these are all
    assert Scan.guess(30, SAMPLED, ((1, 3000),)) == SAMPLED * 100
    assert Scan.guess(1015, SAMPLED, ((1, 15), (1001, 1015), (2001, 2030))) == SAMPLED * 2
