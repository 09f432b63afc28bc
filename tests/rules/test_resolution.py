"""Users, groups and shells by name (contract c.3)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import resolution
from agentd.rules.resolution import (
    Candidates,
    GroupRow,
    Malformed,
    PasswdRow,
    Plan,
    Resolved,
    UnknownGroup,
    UnknownShell,
    UnknownUser,
)

ROOT = PasswdRow("root", 0, 0, "/root")
BUILD = PasswdRow("build", 1000, 100, "/home/build")
TWIN = PasswdRow("twin", 1000, 200, "/home/twin")
SECOND_BUILD = PasswdRow("build", 4000, 400, "/nowhere")
DIGITS = PasswdRow("1234", 77, 78, "/home/1234")
PASSWD = (ROOT, BUILD, TWIN, SECOND_BUILD, DIGITS)

USERS = GroupRow("users", 100, ())
DOCKER = GroupRow("docker", 900, ("twin", "build"))
WHEEL = GroupRow("wheel", 10, ("root", "build"))
SECOND_WHEEL = GroupRow("wheel", 11, ())
NUMERAL = GroupRow("55", 56, ())
GROUPS = (USERS, DOCKER, WHEEL, SECOND_WHEEL, NUMERAL)


# -- the files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("4294967295", 4294967295),
        ("0" * 5000 + "9", 9),
        ("4294967296", None),
        ("9" * 5000, None),
        ("", None),
        ("+1", None),
        ("-1", None),
        (" 1", None),
        ("1_0", None),
        ("0x1", None),
        ("١", None),
        ("²", None),
    ],
)
def test_what_an_id_is(text: str, number: int | None) -> None:
    assert resolution.parse_id(text) == number


def test_a_passwd_file_as_it_is_found() -> None:
    text = (
        b"# users\n\n"
        b"root:x:0:0:root:/root:/bin/bash\n"
        b"   \n"
        b"+:::::::\n"
        b"+@nis:x:1:1:::\n"
        b"-gone:x:1:1:::\n"
        b"short:x:1:1:/home\n"
        b"long:x:1:1:a:/home:/bin/sh:more\n"
        b"noid:x:one:1:a:/home:/bin/sh\n"
        b"negative:x:-1:1:a:/home:/bin/sh\n"
        b"huge:x:4294967296:1:a:/home:/bin/sh\n"
        b":x:0:0:nameless:/home:/bin/sh\n"
        b"dos:x:5:6:a:/home/dos:/bin/sh\r\n"
        b"nopassword::8:9::/home/none:\n"
        b"latin\xe9:x:7:7::/home/latin\xe9:/bin/sh"
    )
    assert resolution.parse_passwd(text) == (
        PasswdRow("root", 0, 0, "/root"),
        PasswdRow("dos", 5, 6, "/home/dos"),
        PasswdRow("nopassword", 8, 9, "/home/none"),
        PasswdRow("latin\udce9", 7, 7, "/home/latin\udce9"),
    )


def test_a_group_file_as_it_is_found() -> None:
    text = (
        b"#c\n\n+\nwheel:x:10:root,build\nempty:x:11:\ndos:x:12:a,b\r\n"
        b"few:x:1\nmany:x:1:a:b\nnoid:x:x:a\n,:x:13:,,a,\n"
    )
    assert resolution.parse_group(text) == (
        GroupRow("wheel", 10, ("root", "build")),
        GroupRow("empty", 11, ()),
        GroupRow("dos", 12, ("a", "b")),
        GroupRow(",", 13, ("a",)),
    )


@given(st.binary())
def test_no_bytes_are_an_error(text: bytes) -> None:
    resolution.parse_passwd(text)
    resolution.parse_group(text)


lines = st.lists(
    st.sampled_from([b"a", b":", b"0", b"x", b"\n", b"\r", b"#", b"+", b",", b"\xff", b"4294967296"])
)


@given(lines)
def test_rows_hold_what_their_line_says(parts: list[bytes]) -> None:
    text = b"".join(parts)
    for row in resolution.parse_passwd(text):
        assert row.name
        assert 0 <= row.uid <= 2**32 - 1
        assert any(
            line.startswith(row.name.encode("utf-8", "surrogateescape") + b":") for line in text.split(b"\n")
        )
    for group in resolution.parse_group(text):
        assert group.name
        assert 0 <= group.gid <= 2**32 - 1
        assert all(member and "," not in member for member in group.members)


field_text = st.text(st.characters(exclude_characters=":\n\r,", codec="utf-8"), max_size=8)
row_name = field_text.filter(lambda name: name != "" and name[0] not in "#+-")
ids = st.integers(0, 2**32 - 1)
passwd_rows = st.builds(PasswdRow, name=row_name, uid=ids, gid=ids, home=field_text)
group_rows = st.builds(
    GroupRow, name=row_name, gid=ids, members=st.lists(field_text.filter(bool), max_size=4).map(tuple)
)


@given(st.lists(passwd_rows, max_size=5), st.sampled_from(["\n", "\r\n", "\n\n#\n"]))
def test_passwd_rows_come_back(rows: list[PasswdRow], end: str) -> None:
    text = "".join(f"{row.name}:x:{row.uid}:{row.gid}:a b:{row.home}:/bin/sh{end}" for row in rows)
    assert resolution.parse_passwd(text.encode()) == tuple(rows)


@given(st.lists(group_rows, max_size=5), st.sampled_from(["\n", "\r\n", "\n+:::\n"]))
def test_group_rows_come_back(rows: list[GroupRow], end: str) -> None:
    text = "".join(f"{row.name}:x:{row.gid}:{','.join(row.members)}{end}" for row in rows)
    assert resolution.parse_group(text.encode()) == tuple(rows)


# -- the user and the group ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "group", "expected"),
    [
        # Nothing asked: nothing changes.
        (None, None, Resolved(None, None, None, None)),
        # A number: that uid, the daemon's gid, no groups; the first row of the uid tells who it is.
        (0, None, Resolved(0, None, (), ROOT)),
        (1000, None, Resolved(1000, None, (), BUILD)),
        (5555, None, Resolved(5555, None, (), None)),
        (1000, 7, Resolved(1000, 7, (), BUILD)),
        # A name: the first row of that name, its gid, its groups.
        ("root", None, Resolved(0, 0, (0, 10), ROOT)),
        ("build", None, Resolved(1000, 100, (100, 900, 10), BUILD)),
        ("twin", None, Resolved(1000, 200, (200, 900), TWIN)),
        ("1234", None, Resolved(77, 78, (78,), DIGITS)),
        # A name and a group: the group replaces the row's gid.
        ("build", 7, Resolved(1000, 7, (7, 900, 10), BUILD)),
        ("build", "docker", Resolved(1000, 900, (900, 10), BUILD)),
        # Digits that no row has for a name: as the number.
        ("1000", None, Resolved(1000, None, (), BUILD)),
        ("00005555", None, Resolved(5555, None, (), None)),
        ("4294967295", None, Resolved(4294967295, None, (), None)),
        # A group alone.
        (None, 0, Resolved(None, 0, (), None)),
        (None, "wheel", Resolved(None, 10, (), None)),
        (None, "55", Resolved(None, 56, (), None)),
        (None, "57", Resolved(None, 57, (), None)),
        # Who is not there. The first that fails decides.
        ("nobody", None, UnknownUser("nobody")),
        ("", None, UnknownUser("")),
        ("4294967296", None, UnknownUser("4294967296")),
        ("-1", None, UnknownUser("-1")),
        ("Root", None, UnknownUser("Root")),
        ("root ", None, UnknownUser("root ")),
        (None, "nobody", UnknownGroup("nobody")),
        (None, "", UnknownGroup("")),
        (None, "9" * 5000, UnknownGroup("9" * 5000)),
        ("nobody", "nobody", UnknownUser("nobody")),
        ("root", "nobody", UnknownGroup("nobody")),
    ],
)
def test_who_a_child_runs_as(
    user: int | str | None, group: int | str | None, expected: Resolved | UnknownUser | UnknownGroup
) -> None:
    assert resolution.resolve(user, group, PASSWD, GROUPS) == expected


def test_with_no_files_only_numbers_are_known() -> None:
    assert resolution.resolve("root", None, (), ()) == UnknownUser("root")
    assert resolution.resolve(None, "root", (), ()) == UnknownGroup("root")
    assert resolution.resolve("12", "34", (), ()) == Resolved(12, 34, (), None)


def test_a_group_that_is_none_is_never_a_supplementary_one() -> None:
    found = resolution.resolve("root", None, PASSWD, (GroupRow("bad", 2**32 - 1, ("root",)), WHEEL))
    assert found == Resolved(0, 0, (0, 10), ROOT)


@given(
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**32 - 1),
    st.lists(passwd_rows),
    st.lists(group_rows),
)
def test_a_number_never_takes_a_rows_group(
    uid: int, gid: int | None, passwd: list[PasswdRow], groups: list[GroupRow]
) -> None:
    found = resolution.resolve(uid, gid, passwd, groups)
    assert isinstance(found, Resolved)
    assert (found.uid, found.gid, found.supplementary) == (uid, gid, ())


@given(st.text(), st.lists(passwd_rows, max_size=4), st.lists(group_rows, max_size=4))
def test_a_name_resolves_to_its_first_row_or_to_its_number_or_not_at_all(
    name: str, passwd: list[PasswdRow], groups: list[GroupRow]
) -> None:
    found = resolution.resolve(name, None, passwd, groups)
    rows = [row for row in passwd if row.name == name]
    if rows:
        assert isinstance(found, Resolved)
        assert (found.uid, found.gid, found.identity) == (rows[0].uid, rows[0].gid, rows[0])
    elif name.isascii() and name.isdigit() and int(name) < 2**32:
        assert isinstance(found, Resolved)
        assert (found.uid, found.gid) == (int(name), None)
    else:
        assert found == UnknownUser(name)


def test_the_identity_of_a_row() -> None:
    assert resolution.identity_variables(BUILD) == {
        "HOME": "/home/build",
        "USER": "build",
        "LOGNAME": "build",
    }
    assert resolution.identity_variables(None) == {}


# -- the shell -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "child_path", "image_path", "expected"),
    [
        ("", "/bin", None, Malformed()),
        ("/opt/sh", "/bin", None, Candidates(("/opt/sh",))),
        ("bin/sh", "/usr", None, UnknownShell("bin/sh")),
        ("./sh", "/usr", None, UnknownShell("./sh")),
        ("sh/", "/usr", None, UnknownShell("sh/")),
        ("bash", None, None, Candidates(("/bin/bash", "/usr/bin/bash"))),
        ("bash", "", "", Candidates(("/bin/bash", "/usr/bin/bash"))),
        ("bash", "/a:/b", "/c", Candidates(("/a/bash", "/b/bash", "/c/bash", "/bin/bash", "/usr/bin/bash"))),
        ("bash", ".::rel:/a", None, Candidates(("/a/bash", "/bin/bash", "/usr/bin/bash"))),
        ("bash", "/usr/bin:/bin", "/bin:/c", Candidates(("/usr/bin/bash", "/bin/bash", "/c/bash"))),
        ("bash", "/a/:/", None, Candidates(("/a/bash", "/bash", "/bin/bash", "/usr/bin/bash"))),
    ],
)
def test_where_a_shell_may_be(
    shell: str,
    child_path: str | None,
    image_path: str | None,
    expected: Candidates | Malformed | UnknownShell,
) -> None:
    assert resolution.shell_candidates(shell, child_path, image_path) == expected


def among(*paths: str) -> Callable[[str], bool]:
    return lambda path: path in paths


def nothing_is_looked_at(_: str) -> bool:
    raise AssertionError("looked at a file")


@pytest.mark.parametrize(
    ("shell", "there", "expected"),
    [
        ("bash", ("/child/bash", "/image/bash", "/bin/bash"), "/child/bash"),
        ("bash", ("/image/bash", "/bin/bash"), "/image/bash"),
        ("bash", ("/usr/bin/bash", "/bin/bash"), "/bin/bash"),
        ("bash", ("/usr/bin/bash",), "/usr/bin/bash"),
        ("bash", ("/bin/sh", "/other/bash"), UnknownShell("bash")),
        ("/opt/bash", ("/opt/bash",), "/opt/bash"),
        ("/opt/bash", ("/bin/bash", "/bin/sh"), UnknownShell("/opt/bash")),
        ("", (), Malformed()),
    ],
)
def test_the_first_executable_file_is_the_shell(
    shell: str, there: tuple[str, ...], expected: str | Malformed | UnknownShell
) -> None:
    assert resolution.choose_shell(shell, "/child", "/image", among(*there)) == expected


def test_true_and_false_keep_their_meaning_and_look_at_nothing() -> None:
    assert resolution.choose_shell(True, "/child", None, nothing_is_looked_at) == "/bin/sh"
    assert resolution.choose_shell(False, "/child", None, nothing_is_looked_at) is None


# -- all of it -----------------------------------------------------------------------------------------------


def planned(
    user: int | str | None = None,
    group: int | str | None = None,
    shell: bool | str = False,
    inherit: bool = False,
    request: dict[str, str] | None = None,
    launch: dict[str, str] | None = None,
    image: dict[str, str] | None = None,
    is_executable: Callable[[str], bool] = nothing_is_looked_at,
) -> Plan | resolution.Refusal:
    return resolution.plan(
        user, group, shell, inherit, request or {}, launch or {}, image or {}, PASSWD, GROUPS, is_executable
    )


@pytest.mark.parametrize(
    ("user", "group", "shell", "expected"),
    [
        ("x", "y", "z", UnknownUser("x")),
        ("root", "y", "z", UnknownGroup("y")),
        ("root", "wheel", "z", UnknownShell("z")),
        ("root", "wheel", "", Malformed()),
        ("x", "wheel", "", UnknownUser("x")),
    ],
)
def test_the_first_field_that_fails_decides(
    user: str, group: str, shell: str, expected: resolution.Refusal
) -> None:
    assert planned(user, group, shell, is_executable=among()) == expected


def test_request_beats_launch_beats_identity_beats_image() -> None:
    image = {"HOME": "image", "USER": "image", "LOGNAME": "image", "ONLY": "image"}
    found = planned(
        "build",
        inherit=True,
        image=image,
        launch={"HOME": "launch", "USER": "launch"},
        request={"HOME": "request"},
    )
    assert isinstance(found, Plan)
    assert dict(found.environment) == {
        "HOME": "request",
        "USER": "launch",
        "LOGNAME": "build",
        "ONLY": "image",
    }
    without = planned("build", image=image)
    assert isinstance(without, Plan)
    assert dict(without.environment) == {"HOME": "/home/build", "USER": "build", "LOGNAME": "build"}


@pytest.mark.parametrize(
    ("request_path", "launch_path", "inherit", "expected"),
    [
        ("/request", "/launch", True, "/request/bash"),
        (None, "/launch", True, "/launch/bash"),
        (None, None, True, "/image/bash"),
        (None, None, False, "/image/bash"),
        ("/empty", "/launch", False, "/image/bash"),  # only the highest layer's PATH, then the image's
    ],
)
def test_a_bare_shell_is_looked_for_on_the_childs_path_then_on_the_images(
    request_path: str | None, launch_path: str | None, inherit: bool, expected: str
) -> None:
    found = planned(
        shell="bash",
        inherit=inherit,
        request={} if request_path is None else {"PATH": request_path},
        launch={} if launch_path is None else {"PATH": launch_path},
        image={"PATH": "/image"},
        is_executable=among("/request/bash", "/launch/bash", "/image/bash"),
    )
    assert isinstance(found, Plan)
    assert found.shell == expected


def test_a_plan_shows_no_values_and_stays_as_it_is() -> None:
    found = planned(request={"TOKEN": "hunter2"})
    assert isinstance(found, Plan)
    assert "hunter2" not in repr(found)
    assert hash(found) == hash(planned(request={"TOKEN": "hunter2"}))
    with pytest.raises(TypeError):
        found.environment["TOKEN"] = ""  # type: ignore[index]  # that it has no assignment is the point
