"""What the examples of each page need beside the page, and which examples are not run, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).parent.parent.parent

LANGUAGES = ("sh", "console", "python")
"""The languages of examples that are run. Blocks without a language are drawings."""


@dataclass(frozen=True)
class Page:
    """How the examples of a page are run.

    In all texts, {folder} is the folder of the test, and {a} to {d} are free ports; a gateway of the page has port {a}.

    Attributes:
        before: Commands that make what the page takes for granted, one on each line.
        replaced: Texts of the page, and what stands for them in the test: placeholders, folders, addresses.
        variables: Environment variables.
        names: Names that Python examples take for granted, and shell words with their values.
        skipped: The first line of each example that is not run, with the reason.
        optional: The first line of each example that is run only if a module is installed, with its name.
        program: A program without which nothing of the page is run.
    """

    before: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None


_GATEWAY = "coregw serve --data {folder}/srv/coregw --port {a}\n"
_DOCS = "mkdir -p docs srv mnt && echo text > docs/protocol.md && echo hello > docs/readme && echo new > notes.txt\n"
_ARCS = """echo '["a","bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq"]' > arcs.ndjson\n"""
_SECOND = "COREGW_PORT={b} coregw serve --data second > second.log 2>&1 &\n"
_TOKENS = {"GATEWAY_ADMIN_TOKEN": "secret", "COREGW_ADMIN_TOKEN": "secret"}
_DATABASE = "needs a cluster of PostgreSQL; `make test-servers` runs these commands with one"
_INSTALLED = "everything is installed already"
_SYSTEM = "changes the system: needs root, systemd or a container"

PAGES: dict[str, Page] = {
    "CONTRIBUTING.md": Page(
        skipped={"cargo bench -p coregw-ops --bench core -- 100000": "compiles for minutes, and measures"},
    ),
    "README.md": Page(
        skipped={
            "make demo    # send a real directory tree through a gateway and back, and verify every byte": "is run by"
            " tests/cli/test_demo.py, and the other command is what runs this"
        }
    ),
    "docs/backups.md": Page(
        before="mkdir -p srv backups\n" + _GATEWAY,
        replaced={"/srv/": "{folder}/srv/", " /backups/": " {folder}/backups/"},
        skipped={
            "coregw backup /var/lib/coregw-backup --data /var/lib/coregw     # as root": _SYSTEM,
            "coregw backup /mnt/backups/coregw --verify                       # with COREGW_STORE and COREGW_BUCKET "
            "set": _DATABASE,
        },
    ),
    "docs/clients.md": Page(
        before=_DOCS + _GATEWAY + "ROOT=$(coregw add docs)\n"
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=a -keyout /dev/null -out ca.pem",
        replaced={
            "https://a.example,https://b.example": "http://127.0.0.1:{a}",
            '"https://a.example", "https://b.example"': '"http://127.0.0.1:{a}"',
            "TOKEN=…": "TOKEN=secret",
            'token="…"': 'token="secret"',
            " ROOT DEST": " $ROOT DEST",
        },
    ),
    "docs/commands.md": Page(
        before=_DOCS
        + _ARCS
        + "ROOT=$(coregw hash docs -q)\n"
        + _SECOND
        + "coregw key log.pem --name example.org/docs/main\n"
        + _GATEWAY,
        replaced={
            "/tmp/": "{folder}/",  # noqa: S108 - it is replaced
            "coregw copy --from rocksdb:DIR": "coregw restore {folder}/backup --data restored && "
            "coregw copy --from rocksdb:restored",
            "postgresql://HOST/NAME": "rocksdb:copied",
            "coregw fsck --repair --data DIR": "coregw fsck --repair --data restored",
            "--data DIR": "--data {folder}/srv/coregw",
            "REPOSITORY": "{folder}/backup",
            "--from URL": "--from http://127.0.0.1:{a}",
            " URL": " http://127.0.0.1:{b}",
            "diff ROOT OTHER": "diff $ROOT $(coregw put $ROOT notes.txt docs/)",
            "--key FILE …": "--key log.pem --origin example.org",
            " ROOT": " $ROOT",
        },
        variables=_TOKENS,
        skipped={
            'eval "$(_COREGW_COMPLETE=bash_source coregw)"': "needs zsh and fish, too; tests/test_docs.py asks for"
            " completions as bash does"
        },
    ),
    "docs/distribution.md": Page(
        before=_DOCS + _ARCS + _GATEWAY + "export ROOT=$(coregw add docs)\nexport CID=$(coregw resolve $ROOT readme)\n"
        "coregw publish docs/main $ROOT\n"
        + _SECOND
        + "python -m http.server {c} --bind 127.0.0.1 --directory {folder}/srv 2> /dev/null > /dev/null &",
        replaced={
            "/srv/": "{folder}/srv/",
            "https://a.example.org": "http://127.0.0.1:{a}",
            "https://b.example.org": "http://127.0.0.1:{b}",
            "https://gateway.example.org": "http://127.0.0.1:{b}",
            "static+https://static.example.org": "static+http://127.0.0.1:{c}/coregw-static",
            "'s3://trees/docs?region=eu-central-1'": "{folder}/bucket",
            "--follow --interval 10": "",
            "coregw mirror docs": "COREGW_FROM_TOKEN=secret COREGW_TO_TOKEN=secret coregw mirror docs",
            " ROOT ": " $ROOT ",
        },
        variables=_TOKENS,
    ),
    "docs/durability.md": Page(
        before=_DOCS + _GATEWAY + "export ROOT=$(coregw add docs)\n",
        replaced={"/srv/": "{folder}/srv/", "/mnt/": "{folder}/mnt/", "pin bafy…": "pin $ROOT"},
    ),
    "docs/exceptions.md": Page(before=_GATEWAY),
    "docs/files.md": Page(
        before="mkdir folder\n"
        r"printf 'city,people\nBern,137000\nGenf,209000\n' > folder/table.csv"
        "\n"
        """python -c 'open("folder/large.bin", "wb").write(bytes(range(256)) * 4_000)'\n"""
        + _GATEWAY
        + "root=$(coregw add folder -q)",
        names={"root": "$root", "address": "$COREGW_GATEWAY"},
        optional={"import pandas as pd": "pandas"},
    ),
    "docs/gateway.md": Page(before=_GATEWAY),
    "docs/how-to/nginx.md": Page(
        replaced={
            "/srv/": "{folder}/srv/",
            "listen 80;": "listen 127.0.0.1:{b};",
            "http://gateway.example.org": "http://127.0.0.1:{b}",
        },
        program="nginx",
    ),
    "docs/how-to/pandas.md": Page(
        before=_GATEWAY,
        skipped={'pip install ".[cli,fsspec]" pandas pyarrow duckdb    # in a clone of coregw': _INSTALLED},
        optional={"import pandas as pd": "pandas", "import duckdb": "duckdb"},
    ),
    "docs/how-to/publish.md": Page(
        before="export GATEWAY_ADMIN_TOKEN=a-secret\n"
        + _GATEWAY
        + f"python {TOP}/tests/helpers/cosigning.py witness.example.org "
        "$(coregw key log.pem --name example.org/docs/main) > witness &\n"
        "timeout 60 sh -c 'until [ -s witness ]; do sleep 0.1; done'",
        replaced={"witness.example.org+0b3e8a11+BI… https://witness.example.org": "$(cat witness)"},
    ),
    "docs/how-to/verify.md": Page(
        before=_GATEWAY + "printf hello | curl -s --data-binary @- http://127.0.0.1:{a}/v1/cas"
    ),
    "docs/how-to/upgrade.md": Page(
        before="mkdir -p srv backups\n" + _GATEWAY,
        replaced={"/srv/": "{folder}/srv/", " /backups/": " {folder}/backups/"},
    ),
    "docs/operations.md": Page(
        before=_DOCS + _GATEWAY + "export ROOT=$(coregw add docs)\n",
        replaced={"/srv/": "{folder}/srv/", "8081": "{d}"},
        variables=_TOKENS,
        skipped={
            "install -D -m 600 token.env /etc/coregw/token.env            # a line GATEWAY_ADMIN_TOKEN=…": _SYSTEM,
            "docker build -f deploy/Containerfile -t coregw .": _SYSTEM,
        },
    ),
    "docs/scaling.md": Page(
        before="mkdir srv\n",
        replaced={
            "/srv/": "{folder}/srv/",
            "8000": "{b}",
            "8001": "{c}",
            "    deploy/": f"    {TOP}/deploy/",
            "pid nginx.pid;": "pid nginx.pid; user root;",  # if root runs this, nobody else may enter the folder
        },
        skipped={
            "createuser coregw && createdb --owner=coregw coregw": _DATABASE,
            "coregw copy --from rocksdb:/srv/coregw --to 'postgresql://coregw@db1/coregw' --to-bucket "
            "'s3://coregw-chunks?region=eu-central-1'": _DATABASE,
            "# The database; here on this machine. A second node with synchronous_standby_names = 'ANY 1 (*)' makes "
            "two copies.": _DATABASE,
        },
        program="nginx",
    ),
    "docs/trust.md": Page(
        before=_DOCS
        + _GATEWAY.replace("\n", " > gateway.log 2>&1 &\n")
        + "first=$(coregw add docs -q)\nsecond=$(coregw put -q $first notes.txt x/)\n"
        "coregw publish docs/frozen $first",
        replaced={
            "trust docs bagiofqabciq…": "trust docs $first",
            "accept docs bagiofqabciqb…": "accept docs $second",
            "2026-11-02T10:15:00Z": "…",
            "2026-11-09T08:00:12Z": "…",
            "bagiofqabciqb…": "bagiofqabciq…",
            "COREGW_ADMIN_TOKEN=…  ": "COREGW_ADMIN_TOKEN=secret  ",
            "freeze docs/main ": "freeze docs/frozen --yes ",
            " ROOT ": " $first ",
            " DIR ": " {folder}/srv/coregw ",
            "+7fe0a2c5+AQ…": "+…",
            "$ coregw root trust docs --follow docs/main --policy": "$ coregw root forget docs\n"
            "$ coregw key log.pem --name example.org/docs/main | sed 's/^/log /; a quorum none' > policy.txt\n"
            "$ coregw root trust docs --follow docs/main --policy",
        },
        variables=_TOKENS,
    ),
    "docs/tutorial.md": Page(
        skipped={"make install && . .venv/bin/activate": _INSTALLED},
    ),
}


def pages() -> list[str]:
    """The paths of all pages that may have examples. Decisions are records, not instructions."""
    found = [*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *TOP.glob("*/README.md")]
    return sorted(path.relative_to(TOP).as_posix() for path in found if path.parent.name != "decisions")
