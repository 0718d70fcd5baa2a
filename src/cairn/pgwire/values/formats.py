"""Values in PostgreSQL's text and binary formats: looks up what fits a type OID and a format code.

Python side: bool, int, float, Decimal, str, UUID, aware UTC datetime, anything JSON can hold for
`json`, bytes for `bytea`, lists for arrays. NULL is None and never reaches an encoder or decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from cairn.model.errors import CairnError, InvalidParameter, Unsupported
from cairn.model.types.enums import text_oid
from cairn.pgwire.messages import BINARY_FORMAT, TEXT_FORMAT
from cairn.pgwire.values import arrays
from cairn.pgwire.values.decoders import BINARY_DECODERS, TEXT_DECODERS, Decoder
from cairn.pgwire.values.encoders import BINARY_ENCODERS, TEXT_ENCODERS, Encoder, encode_any
from cairn.pgwire.values.oids import ARRAY_ELEMENTS, type_name
from cairn.pgwire.values.problems import in_parameter


@lru_cache(maxsize=256)
def text_encoder(oid: int) -> Encoder:
    """Python value -> PostgreSQL's text. A type we do not know is written as Python writes it."""
    element = ARRAY_ELEMENTS.get(oid)
    if element is not None:
        return arrays.text_encoder(TEXT_ENCODERS[element])
    return TEXT_ENCODERS.get(oid, encode_any)


@lru_cache(maxsize=256)
def binary_encoder(oid: int) -> Encoder:
    """Python value -> PostgreSQL's binary form. Unsupported for a type we do not know."""
    oid = text_oid(oid)
    element = ARRAY_ELEMENTS.get(oid)
    if element is not None:
        return arrays.binary_encoder(BINARY_ENCODERS[element], element)
    if oid not in BINARY_ENCODERS:
        raise Unsupported(f"no binary output for type {type_name(oid)}")
    return BINARY_ENCODERS[oid]


def encoder(oid: int, fmt: int) -> Encoder:
    return binary_encoder(oid) if fmt == BINARY_FORMAT else text_encoder(oid)


@lru_cache(maxsize=512)
def decoder(oid: int, fmt: int) -> Decoder:
    """Bytes of one value -> Python value; raises InvalidText, InvalidBinary or OutOfRange."""
    if fmt not in (TEXT_FORMAT, BINARY_FORMAT):
        raise InvalidParameter(f"unsupported format code: {fmt}")
    table = BINARY_DECODERS if fmt == BINARY_FORMAT else TEXT_DECODERS
    oid = text_oid(oid)
    element = ARRAY_ELEMENTS.get(oid)
    if element is not None:
        if fmt == BINARY_FORMAT:
            return arrays.binary_decoder(table[element], element, oid)
        return arrays.text_decoder(table[element], oid)
    if oid not in table:
        raise Unsupported(f"parameters of type {type_name(oid)} are not supported")
    return table[oid]


def decode_params(decoders: Sequence[Decoder], params: Sequence[bytes | None]) -> list[Any]:
    """The values of a Bind. There are as many `decoders` as `params`."""
    try:
        if len(params) == 1:  # the point read: not worth a loop
            param = params[0]
            return [None if param is None else decoders[0](param)]
        pairs = zip(decoders, params, strict=True)
        return [None if param is None else decode(param) for decode, param in pairs]
    except CairnError as error:
        raise in_parameter(1 + _first_bad(decoders, params), error) from None


def _first_bad(decoders: Sequence[Decoder], params: Sequence[bytes | None]) -> int:
    for index, (decode, param) in enumerate(zip(decoders, params, strict=True)):
        try:
            if param is not None:
                decode(param)
        except CairnError:
            return index
    raise AssertionError("a decoder refused a value and then took it")
