"""The page of errors has every SQLSTATE that the source can say.

`python -m tests.model.test_error_pages` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from tests.model.error_pages import codes, page_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"


def test_the_page_has_every_code() -> None:
    assert page_of(PAGE.read_text()) == PAGE.read_text(), (
        "run python -m tests.model.test_error_pages"
    )


def test_codes_of_classes_and_of_single_calls_are_found() -> None:
    found = codes()
    assert {"PC006", "40003", "23505"} <= set(found)  # of classes
    assert {"22008", "57P01"} <= set(found)  # given where they are raised
    assert found["PC006"] == [
        "A write was done on some replicasets only; the detail lists each of them."
    ]


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text()))
