"""InterCode-Bash's reward on listings and texts."""

import math

import pytest

from lemur_ray.grading.files import Entry, bash_reward, git_status, similarity

FOLDER = Entry("d", 0o755, "")


def file(content: str, mode: int = 0o644) -> Entry:
    return Entry("f", mode, content)


BEFORE = {"/t": FOLDER, "/t/a.txt": file("a"), "/t/b": FOLDER, "/t/b/c.sh": file("c"), "/empty": FOLDER}


def test_the_right_answer_is_exactly_one():
    for compat in (True, False):
        assert bash_reward(BEFORE, BEFORE, "x y", BEFORE, "x y", compat=compat) == 1.0
        after = {**BEFORE, "/t/new.txt": file("n")}
        assert bash_reward(BEFORE, after, "", after, "", compat=compat) == 1.0


@pytest.mark.parametrize(("extra", "part"), [(0, 0.33), (1, 0.05), (2, 0.0)])
def test_every_change_too_many_costs_by_the_error_function(extra: int, part: float):
    after = {**BEFORE, **{f"/t/x{i}": file("x") for i in range(extra)}}
    got = bash_reward(BEFORE, after, "", BEFORE, "", compat=True)
    assert got == pytest.approx(0.01 + part + 0.33 + 0.33)
    assert round(0.33 * (1 - math.erf(extra)), 2) == part


def test_git_lists_what_upstream_saw():
    after = {
        "/t": FOLDER,
        "/t/a.txt": file("other"),
        "/t/b": FOLDER,
        "/t/b/c.sh": file("c", 0o755),
        "/new": FOLDER,
        "/new/deep": FOLDER,
        "/new/deep/f": file("f"),
        "/t/b/n": file("n"),
        "/hollow": FOLDER,
    }
    assert git_status(BEFORE, after) == {("t/a.txt", "M"), ("t/b/c.sh", "M"), ("new/", "??"), ("t/b/n", "??")}
    assert git_status(BEFORE, {"/t": FOLDER, "/t/b": FOLDER, "/t/b/c.sh": file("c")}) == {("t/a.txt", "D")}
    assert git_status(BEFORE, {**BEFORE, "/t/two words": file("x")}) == {("t/two", "??")}


def test_contents_of_modified_files_count_only_without_compat():
    mine = {**BEFORE, "/t/a.txt": file("mine")}
    gold = {**BEFORE, "/t/a.txt": file("gold")}
    assert bash_reward(BEFORE, mine, "", gold, "", compat=True) == 1.0
    assert bash_reward(BEFORE, mine, "", gold, "", compat=False) == pytest.approx(0.67)
    hollow = {key: entry for key, entry in BEFORE.items() if key != "/empty"}
    assert bash_reward(BEFORE, hollow, "", BEFORE, "", compat=True) == 1.0
    assert bash_reward(BEFORE, hollow, "", BEFORE, "", compat=False) < 1


def test_new_files_without_a_point_are_equal_for_upstream_and_for_nobody_else():
    mine, gold = ({**BEFORE, "/t/n": file(content), "/t/n.txt": file(content)} for content in "mg")
    assert bash_reward(BEFORE, mine, "", gold, "", compat=True) == pytest.approx(0.01 + 0.33 + 0.17 + 0.33)
    assert bash_reward(BEFORE, mine, "", gold, "", compat=False) == pytest.approx(0.67)


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ("", "", 1.0),
        ("1", "2", 0.0),
        ("1\n", "1\n", 1.0),
        ("", "word", 0.0),
        ("alpha beta", "beta ALPHA", 1.0),
        ("alpha beta", "gamma delta", 0.0),
        ("alpha beta", "alpha gamma", 0.33609692727625756),
        ("one two two", "one two", 0.9486832980505138),
    ],
)
def test_similarity_is_the_cosine_of_tf_idf_vectors(a: str, b: str, value: float):
    assert similarity(a, b) == pytest.approx(value)
    assert similarity(b, a) == pytest.approx(value)
