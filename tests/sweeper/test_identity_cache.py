"""Values derived from objects are derived again once any of these is another object, and not before."""

import pytest

from webhook.identity_cache import IdentityCache, changed_keys


class Thing:
    """Equal to all others, as a changed object may be to the one before."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


A, B = Thing(), Thing()


def test_a_value_is_made_once_for_the_very_same_objects() -> None:
    cache, made = IdentityCache[str, str](), list[tuple[Thing, Thing]]()

    def make(one: Thing, other: Thing) -> str:
        made.append((one, other))
        return "made"

    assert [cache.get("key", make, A, B) for _ in range(3)] == ["made"] * 3
    assert len(made) == 1
    cache.get("another key", make, A, B)
    assert len(made) == 2


@pytest.mark.parametrize(
    "made_of", [(A,), (A, A), (B, A), (A, B, B), ()], ids=["a", "aa", "ba", "abb", "none"]
)
def test_a_value_does_not_hold_for_other_objects_however_equal(made_of: tuple[Thing, ...]) -> None:
    cache = IdentityCache[str, str]()
    cache.keep("key", "kept", A, B)
    assert cache.find("key", *made_of) is None
    assert cache.find("key", A, B) == "kept"


def test_what_could_not_be_made_is_tried_again() -> None:
    cache = IdentityCache[str, int]()
    with pytest.raises(ValueError, match="x"):
        cache.get("key", int, "x")
    assert cache.get("key", int, "1") == 1


def test_what_was_not_asked_for_in_a_round_is_forgotten() -> None:
    cache = IdentityCache[str, str]()
    cache.keep("asked", "a", A)
    cache.keep("not asked", "b", B)
    cache.end_pass()
    assert cache.find("asked", A) == "a"
    cache.end_pass()
    assert (cache.find("asked", A), cache.find("not asked", B)) == ("a", None)


def test_unused_entries_of_keys_that_are_there_stay_until_most_entries_are_of_others() -> None:
    cache = IdentityCache[int, int]()
    for key in range(5):
        cache.keep(key, key, A)
        cache.end_pass(count=2)
    assert cache.find(1, A) == 1
    for _ in range(2):
        cache.end_pass(count=2)
    assert (cache.find(0, A), cache.find(1, A)) == (None, 1)


def test_a_map_makes_values_of_those_keys_alone_for_which_an_object_has_changed() -> None:
    values, made = IdentityCache[str, int](), list[str]()

    def make(key: str) -> int | None:
        made.append(key)
        return len(made) if key in now else None

    now = {"a": A, "b": A}
    first = values.of_all(make, now, {})
    assert values.of_all(make, dict(now), {}) is first, "the very same where nothing has changed"
    now = {"a": A, "b": B}
    second = values.of_all(make, now, {})
    assert made[2:] == ["b"]
    assert (first["b"], second["b"], second["a"]) == (first["b"], 3, first["a"])
    now = {"a": A}
    assert values.of_all(make, now, {"a": B}).keys() == {"a"}
    assert sorted(made[3:]) == ["a", "b"]
    assert second.keys() == {"a", "b"}, "what was handed out stays as it was"


def test_a_map_that_failed_to_convert_an_object_converts_it_the_next_time() -> None:
    values = IdentityCache[str, int]()
    empty: dict[str, int] = {}
    with pytest.raises(KeyError):
        values.of_all(empty.__getitem__, {"a": A})
    assert values.of_all({"a": 1}.__getitem__, {"a": A}) == {"a": 1}


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [({}, {"a": A}, {"a"}), ({"a": A}, {}, {"a"}), ({"a": A}, {"a": B}, {"a"}), ({"a": A}, {"a": A}, set())],
)
def test_keys_change_with_the_identity_of_what_they_hold(
    before: dict[str, Thing], now: dict[str, Thing], changed: set[str]
) -> None:
    assert changed_keys(before, now) == changed
