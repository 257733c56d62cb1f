"""Where the kernel's source comes from, what its build is keyed by, and what is refused."""

from pathlib import Path

import pytest

from testbed.guest import kernel, kernel_additions, kernel_edits
from testbed.guest.kernel_additions import Addition
from testbed.guest.kernel_edits import Edit, EditMismatchError, apply_edits
from testbed.setup.apt_sources import Source, machine_sources, parse_deb822, parse_one_line
from testbed.setup.guest_kernel import dropped_options, tree_folder
from testbed.setup.linux_source import candidates, wanted_sources
from topologies.errors import MissingFeature

ARCHIVE = "http://mirror.example/debian"
KEYRING = "/usr/share/keyrings/archive.gpg"

DEB822 = f"""\
Types: deb deb-src
# a comment within a stanza
URIs: {ARCHIVE}
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: {KEYRING}

Enabled: no
Types: deb
URIs: http://disabled.example/
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/
Suites: bookworm
Components: main
   \t
types: deb
uris: http://other.example/x
suites: stable
components: extra
signed-by:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----
"""

ONE_LINE = f"""\
# deb http://commented.example/debian bookworm main
deb {ARCHIVE} bookworm main contrib # trailing
deb-src {ARCHIVE} bookworm main
  deb [ arch=amd64,arm64 signed-by={KEYRING} lang=de ] {ARCHIVE} bookworm-updates main
deb mirror+file:/etc/apt/mirrors/debian.list bookworm-security main
"""


def test_deb822_gives_the_enabled_binary_sources_with_their_keys() -> None:
    archive, other = parse_deb822(DEB822)
    assert (archive.uris, archive.suites) == ((ARCHIVE,), ("bookworm", "bookworm-updates"))
    assert dict(archive.options) == {"Signed-By": KEYRING}
    assert other.options["Signed-By"].splitlines()[2] == " ."


def test_one_line_sources_with_and_without_options() -> None:
    plain, optioned, security = parse_one_line(ONE_LINE)
    assert plain == Source(uris=(ARCHIVE,), suites=("bookworm",), components=("main", "contrib"))
    assert dict(optioned.options) == {"Architectures": "amd64 arm64", "Signed-By": KEYRING}
    assert security.uris == ("mirror+file:/etc/apt/mirrors/debian.list",)


@pytest.mark.parametrize("text", [DEB822, "Types: deb\nURIs: u\nSuites: s\nComponents: c d\n"])
def test_a_stanza_that_is_written_is_read_back_the_same(text: str) -> None:
    for source in parse_deb822(text):
        assert list(parse_deb822(source.stanza())) == [source]


def test_all_of_a_machines_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://a.example x main\n")
    (tmp_path / "sources.list.d" / "b.list").write_text("deb http://b.example x main\n")
    (tmp_path / "sources.list.d" / "c.sources").write_text("Types: deb\nURIs: http://c.example\nSuites: x\n")
    (tmp_path / "sources.list.d" / "d.sources.disabled").write_text("Types: deb\nURIs: http://d.example\nSuites: x\n")
    assert [source.uris[0][7] for source in machine_sources(tmp_path)] == ["a", "b", "c"]
    assert machine_sources(tmp_path / "nowhere") == []


def test_debian_looks_into_backports_on_its_own_mirror_and_ubuntu_only_into_its_suites() -> None:
    sources = [*parse_deb822(DEB822), *parse_one_line("deb http://other.example noble main universe\n")]
    debian = wanted_sources(sources, distribution="debian", codename="bookworm")
    assert [source.suites for source in debian[1:]] == [("bookworm-backports",), ("trixie-backports",)]
    assert all(source.uris == (ARCHIVE,) and source.options["Signed-By"] == KEYRING for source in debian)
    ubuntu = wanted_sources(sources, distribution="ubuntu", codename="noble")
    assert [source.suites for source in ubuntu] == [("noble",)]


def test_a_machine_without_its_own_archive_is_told_so() -> None:
    with pytest.raises(MissingFeature, match="no source for debian bookworm"):
        wanted_sources(parse_one_line("deb http://x.example sid main"), distribution="debian", codename="bookworm")


def test_the_newest_release_comes_first_by_number_not_by_spelling() -> None:
    madison = """\
 linux-source-6.9 | 6.9.7-1~bpo12+1 | http://mirror.example/debian bookworm-backports/main amd64 Packages
linux-source-6.12 | 6.12.90-1~bpo12+1 | http://mirror.example/debian bookworm-backports/main amd64 Packages
linux-source-6.12 | 6.12.88-1~bpo12+1 | http://mirror.example/debian bookworm-backports/main amd64 Packages
linux-source-7.3 | 7.3.4-1~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages
linux-source-6.8.0 | 6.8.0-50.51 | http://mirror.example/ubuntu noble-updates/main amd64 Packages
linux-source | 6.1.170-3 | http://mirror.example/debian bookworm/main amd64 Packages
N: a remark of apt's
"""
    found = candidates(madison)
    assert [source.release for source in found] == [(7, 3), (6, 12), (6, 9), (6, 8, 0)]
    assert found[1].package_version == "6.12.90-1~bpo12+1"
    assert "/" not in found[0].version


def test_an_edit_must_match_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("x = 1;\ny = 1;\n")
    edit = Edit(name="one", path="a.c", why="it was wrong", pattern=r"x = 1;", replacement=r"x = \1;")
    apply_edits(tmp_path, [edit])
    assert (tmp_path / "a.c").read_text() == "x = \\1;\ny = 1;\n"
    with pytest.raises(EditMismatchError, match=r"a\.c.*it was wrong"):
        apply_edits(tmp_path, [edit])
    with pytest.raises(EditMismatchError):
        apply_edits(tmp_path, [Edit(name="two", path="a.c", why="", pattern="[xy]", replacement="z")])


@pytest.fixture
def addition(tmp_path: Path) -> Addition:
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "sch_x.c").write_text("int x;\n")
    (folder / "Makefile").write_text("not this one\n")
    return Addition(
        folder=folder,
        into="net/sched",
        option="NET_SCH_X",
        object_file="sch_x.o",
        kconfig='config NET_SCH_X\n\ttristate "X"\n',
        before="config NET_SCH_HTB",
    )


def test_our_own_code_joins_the_kernels_build(tmp_path: Path, addition: Addition) -> None:
    scheduler = tmp_path / "tree" / "net" / "sched"
    scheduler.mkdir(parents=True)
    (scheduler / "Makefile").write_text("obj-y := a.o\n")
    (scheduler / "Kconfig").write_text("if NET_SCHED\n\nconfig NET_SCH_HTB\n\ttristate\n\nendif\n")
    addition.apply(tmp_path / "tree")
    assert (scheduler / "sch_x.c").exists()
    assert (scheduler / "Makefile").read_text() == "obj-y := a.o\nobj-$(CONFIG_NET_SCH_X) += sch_x.o\n"
    kconfig = (scheduler / "Kconfig").read_text()
    assert kconfig.index("if NET_SCHED") < kconfig.index("NET_SCH_X") < kconfig.index("NET_SCH_HTB")
    (scheduler / "Kconfig").write_text("nothing of the kind\n")
    with pytest.raises(ValueError, match="NET_SCH_HTB"):
        addition.apply(tmp_path / "tree")


def test_a_line_of_our_c_code_is_another_kernel(addition: Addition) -> None:
    before = kernel_additions.digest([addition])
    assert before == kernel_additions.digest([addition])
    (addition.folder / "sch_x.c").write_text("int y;\n")
    assert kernel_additions.digest([addition]) != before


def test_why_an_edit_is_made_does_not_make_another_kernel() -> None:
    edit = Edit(name="a", path="p", why="w", pattern="x", replacement="y")
    other = Edit(name="a", path="p", why="better words", pattern="x", replacement="y")
    assert kernel_edits.digest([edit]) == kernel_edits.digest([other])
    changed = Edit(name="a", path="p", why="w", pattern="x", replacement="z")
    assert kernel_edits.digest([edit]) != kernel_edits.digest([changed])


def test_older_releases_get_the_edits_that_fit_them() -> None:
    assert kernel_edits.edits_for((7, 3)) == kernel_edits.edits_for((6, 16)) == kernel_edits.EDITS
    assert kernel_edits.edits_for((6, 12)) == kernel_edits.edits_for((6, 8, 0)) == kernel_edits.OLDER_EDITS
    assert {edit.path for edit in kernel_edits.OLDER_EDITS} >= {"arch/um/Kconfig", "arch/um/kernel/time.c"}


def test_the_config_names_each_option_once_and_our_own_is_among_them() -> None:
    lines = [line for line in kernel.CONFIG.read_text().splitlines() if line.startswith("CONFIG_")]
    options = [line.partition("=")[0] for line in lines]
    assert len(options) == len(set(options))
    assert kernel.config_options()["CONFIG_NET_SCH_FABRIC"] == "y"
    assert kernel.config_options("# CONFIG_A=y\nCONFIG_B=y\n")["CONFIG_B"] == "y"


def test_an_option_that_the_kernel_dropped_is_named() -> None:
    wanted = {"CONFIG_A": "y", "CONFIG_B": "y", "CONFIG_C": "1000"}
    assert dropped_options(wanted, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=100\n") == ["CONFIG_B", "CONFIG_C"]
    assert dropped_options({"CONFIG_A": "y"}, "CONFIG_A=y\n") == []


@pytest.mark.parametrize("cache", ["/home/u/my cache", "/mnt/a:b"])
def test_the_kernel_is_not_built_below_a_folder_that_make_cannot_name(cache: str) -> None:
    assert tree_folder(Path(cache)) == Path("/var/tmp")
    assert tree_folder(Path("/home/u/.cache")) == Path("/home/u/.cache")


def test_of_the_finished_kernels_the_newest_is_found(tmp_path: Path) -> None:
    for version in ("6.9.7-1", "7.3.4-1~bpo13+1", "6.16.2-1"):
        folder = tmp_path / f"kernel-{version}-{kernel.key()}"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"version": "x"}')
    (tmp_path / f"kernel-8.0-{kernel.key()}").mkdir()  # no manifest: never finished
    (tmp_path / "kernel-9.0-000000000000").mkdir()
    (tmp_path / "kernel-9.0-000000000000" / "manifest.json").write_text("{}")
    binary = kernel.find({"FABRIC_TESTBED_CACHE": str(tmp_path)})
    assert binary.parent.name.startswith("kernel-7.3.4")
    assert kernel.description(binary) == {"version": "x"}
    with pytest.raises(MissingFeature, match=r"\./run setup"):
        kernel.find({"FABRIC_TESTBED_CACHE": str(tmp_path / "empty")})
