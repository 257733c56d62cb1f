"""The edits of the guest kernel: each applies once or says that it does not, and none hides another."""

import re
from pathlib import Path

import pytest

from testbed.guest import kernel_edits
from testbed.guest.kernel_edits import EDITS, Edit, EditMismatchError, apply_edits

EDIT = Edit(name="a-name", path="a/file.c", why="a reason", pattern=r"x = .;\n", replacement="x = '\\1';\n")


def tree(folder: Path, text: str) -> Path:
    (folder / "a").mkdir()
    (folder / "a" / "file.c").write_text(text)
    return folder


def test_names_are_unique_and_reasons_are_given() -> None:
    assert len({edit.name for edit in EDITS}) == len(EDITS)
    assert all(edit.why for edit in EDITS)


def test_patterns_are_regular_expressions_and_do_not_match_nothing() -> None:
    for edit in EDITS:
        assert not re.compile(edit.pattern, re.DOTALL).search(""), edit.name


def test_a_replacement_is_literal(tmp_path: Path) -> None:
    apply_edits(tree(tmp_path, "x = 1;\ny = 2;\n"), [EDIT])
    assert (tmp_path / "a" / "file.c").read_text() == "x = '\\1';\ny = 2;\n"


@pytest.mark.parametrize("text", ["y = 1;\n", "x = 1;\nx = 2;\n"])
def test_no_place_or_two_is_an_error_that_names_the_edit(tmp_path: Path, text: str) -> None:
    folder = tree(tmp_path, text)
    with pytest.raises(EditMismatchError, match=r"a/file\.c.*a-name.*a reason"):
        apply_edits(folder, [EDIT])
    assert (folder / "a" / "file.c").read_text() == text


def test_a_file_that_the_release_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(EditMismatchError, match=r"a/file\.c: not in this release.*a-name"):
        apply_edits(tmp_path, [EDIT])


def test_all_edits_are_in_the_key_of_a_build() -> None:
    whole = kernel_edits.digest()
    assert all(kernel_edits.digest([edit for edit in EDITS if edit is not left_out]) != whole for left_out in EDITS)
