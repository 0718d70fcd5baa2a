"""What was compiled is there: all other tests of this folder are skipped without it."""

from __future__ import annotations

import ctypes
import os

import pytest

from cairn.native.library import OFF, library, path


@pytest.mark.skipif(os.environ.get(OFF) == "off", reason="it is not wanted")
def test_a_library_that_was_compiled_can_be_loaded() -> None:
    found = path()
    if found is None:
        pytest.skip("there is no compiler here")
    ctypes.CDLL(str(found))  # or it says which name it lacks
    assert library() is not None
