"""The base package verifies on its own; every other part names the extra that it lacks, in one sentence."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from coregw import _core, extras
from tables import rows

TOP = Path(__file__).parent.parent
PACKAGE = TOP / "python" / "coregw"
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def distributions(extra: str) -> set[str]:
    """The distributions that an extra installs, those of the extras that it includes as well."""
    found: set[str] = set()
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == "coregw":
            found = found.union(*map(distributions, requirement.extras))
        else:
            found.add(requirement.name)
    return found


NAMED_OTHERWISE = {"opentelemetry": "opentelemetry-api"}
"""Distributions that are not named as the package that they bring."""


FOR_TYPES = {"typing_extensions"}
"""Packages that type checkers know without an installation, if they are imported for types alone."""


def imported_for_types(tree: ast.Module) -> set[ast.AST]:
    """The nodes below ``if TYPE_CHECKING:`` that import what type checkers know."""
    guarded = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    return {
        node
        for guard in guarded
        if isinstance(guard.test, ast.Name) and guard.test.id == "TYPE_CHECKING"
        for node in guard.body
        if isinstance(node, ast.ImportFrom) and node.module in FOR_TYPES
    }


def third_party(part: str) -> set[str]:
    """The distributions that a part of the package imports anywhere, named as in pyproject.toml."""
    path = PACKAGE / part
    found = set()
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        tree = ast.parse(file.read_text("utf-8"))
        for node in {*ast.walk(tree)} - imported_for_types(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    names = found - set(sys.stdlib_module_names) - {"coregw"}
    distributed = {NAMED_OTHERWISE.get(name, name.replace("_", "-")) for name in names}
    return distributed - {"click"}  # click comes with rich-click


def test_the_base_package_has_no_dependencies() -> None:
    assert PROJECT["dependencies"] == []


def test_cli_includes_client_and_all_includes_everything() -> None:
    assert set(EXTRAS) == {"client", "cli", "server", "otel", "postgres", "s3", "fsspec", "log", "all"}
    assert distributions("client") < distributions("cli")
    assert distributions("server") < distributions("otel")
    assert distributions("server") < distributions("postgres") < distributions("s3")
    assert distributions("all") == set().union(*(distributions(extra) for extra in EXTRAS if extra != "all"))


@rows("part", ["__init__.py", "__main__.py", "errors.py", "extras.py"])
def test_the_base_package_imports_the_standard_library_only(part: str) -> None:
    assert third_party(part) == set()


@rows(
    ("part", "extra"),
    [
        ("messages", "client"),
        ("client", "client"),
        ("cli", "cli"),
        ("trust.py", "client"),
        ("messages", "server"),
        ("engine", "server"),
        ("gateway", "otel"),
        ("gateway/app.py", "server"),
        ("gateway/routes", "server"),
        ("gateway/server.py", "server"),
        ("plants", "server"),
        ("store", "s3"),
        ("store/memory.py", "server"),
        ("store/postgres/store.py", "postgres"),
        ("store/rocksdb", "server"),
    ],
)
def test_an_extra_brings_what_its_part_imports(part: str, extra: str) -> None:
    assert third_party(part) <= distributions(extra)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel of coregw, and nothing else. Nothing is downloaded or compiled."""
    folder = tmp_path_factory.mktemp("bare")
    wheel = built_wheel(folder)
    environment = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-compile", wheel)
    return python


def built_wheel(folder: Path) -> Path:
    """A wheel of the working copy: its modules, the extension that is built, and the metadata of the build backend."""
    installed = importlib.metadata.distribution("coregw")
    name = f"coregw-{installed.version}"
    info = f"{name}.dist-info"
    files = {f"coregw/{path.relative_to(PACKAGE)}": path.read_bytes() for path in PACKAGE.rglob("*.py")}
    extension = Path(_core.__file__)
    files[f"coregw/{extension.name}"] = extension.read_bytes()
    files[f"{info}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(path, content)
    return wheel


def run(*command: str | Path, code: int = 0) -> str:
    """Run a command that must exit with `code`; return its stdout and stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COREGW_"))}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd="/", check=False
    )
    assert done.returncode == code, done.stdout
    return done.stdout


VERIFY = """
import base64, json, sys
import coregw
cid = coregw.payload_cid(b"hello")
tree = coregw.Map({"docs/readme": cid})
proof = tree.prove("docs/readme")
assert coregw.verify_key(tree.root, "docs/readme", proof) == cid
request = {"profile": "core.resolve/v0alpha1", "root": tree.root, "segments": ["docs", "readme"]}
step = {"kind": "map_step", "from": {"/": tree.root}, "target": {"/": cid}, "path": "docs/readme",
        "evidence_kind": "tree", "evidence_backend": "sha2-256", "proof": base64.b64encode(proof).decode()}
prooflist = {"root": {"/": tree.root}, "query": "docs/readme", "steps": [step]}
result = {"profile": "core.resolve/v0alpha1", "target": cid, "prooflist": prooflist}
assert coregw.verify_resolve(json.dumps(request), json.dumps(result)) == cid
try:
    coregw.verify_key(tree.root, "docs/readme", proof[:-1])
except coregw.ProofError:
    print("verified")
"""


def test_the_base_package_verifies(bare_python: Path) -> None:
    assert run(bare_python, "-c", VERIFY) == "verified\n"


def test_the_base_package_documents_itself(bare_python: Path) -> None:
    shown = run(bare_python, "-c", "import coregw; help(coregw)")
    assert "verify_resolve" in shown


@rows(
    ("statement", "what", "extra"),
    [
        ("coregw.Client", "coregw.Client", "client"),
        ("coregw.AsyncClient", "coregw.AsyncClient", "client"),
        ("from coregw import Client", "coregw.Client", "client"),
        ("import coregw.client", "coregw.client", "client"),
        ("from coregw.client.operations import tree", "coregw.client", "client"),
        ("import coregw.messages", "coregw.messages", "client"),
        ("from coregw.messages.payloads import Block", "coregw.messages", "client"),
        ("coregw.verify_resolve({}, {})", "a dict instead of JSON text", "client"),
        ("import coregw.gateway.app", "coregw.gateway", "server"),
        ("import coregw.engine", "coregw.engine", "server"),
        ("import coregw.plants", "coregw.plants", "server"),
        ("import coregw.plants.app", "coregw.plants", "server"),
        ("import coregw.store.rocksdb", "coregw.store.rocksdb", "server"),
        ("from coregw.store.rocksdb.store import RocksStore", "coregw.store.rocksdb", "server"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(bare_python: Path, statement: str, what: str, extra: str) -> None:
    last_line = run(bare_python, "-c", f"import coregw\n{statement}", code=1).splitlines()[-1]
    assert last_line == f"coregw.extras.MissingExtraError: {what} {needs(extra)}"


def needs(extra: str) -> str:
    return f'needs the "{extra}" extra: pip install ".[{extra}]" in a clone of coregw'


def test_the_extras_are_those_of_the_project() -> None:
    named_otherwise = {
        "google_crc32c": "google-crc32c",
        "prometheus_client": "prometheus-client",
        "rich_click": "rich-click",
    }
    assert {*extras.EXTRAS} == {*EXTRAS} - {"all"}
    for extra, modules in extras.EXTRAS.items():
        own = {named_otherwise.get(name, NAMED_OTHERWISE.get(name, name)) for name in modules} - {"click"}
        direct = {requirement.name for requirement in map(Requirement, EXTRAS[extra]) if requirement.name != "coregw"}
        assert own == {name for name in direct if not name.startswith("opentelemetry-") or name in own}, extra


PARTS = (
    "cli",
    "client",
    "engine",
    "filesystem",
    "folders",
    "gateway",
    "messages",
    "plants",
    "store",
    "tlog",
    "trust",
    "upkeep",
)

IMPORT_EACH = """
import importlib, sys
from pathlib import Path
from coregw.extras import MissingExtraError
kept = ("coregw._core", "coregw.extras")
for name in {names!r}:
    for loaded in [each for each in sys.modules if each.startswith("coregw.") and each not in kept]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except MissingExtraError:
        pass
    except Exception as error:
        print(name, type(error).__name__, error)
"""


def test_a_module_without_its_extra_names_it(bare_python: Path) -> None:
    files = [file for part in PARTS for file in (PACKAGE / part).rglob("*.py")]
    dotted = [".".join(("coregw", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files]
    names = sorted(name.removesuffix(".__init__") for name in dotted)
    assert len(names) > 100
    assert run(bare_python, "-c", IMPORT_EACH.format(names=names)) == ""


@rows(
    ("missing", "wanted", "named"),
    [
        ("pycurl", "server", "client"),  # `coregw doctor` with the extra `server` alone
        ("rocksdict", "cli", "server"),
        ("msgspec.structs", "server", "server"),
        ("pycurl", "fsspec", "fsspec"),
        ("msgspec", "s3", "s3"),
        ("opentelemetry.sdk", "server", "otel"),
    ],
)
def test_the_extra_is_one_that_brings_the_module(missing: str, wanted: str, named: str) -> None:
    error = extras.missing_extra(ModuleNotFoundError(name=missing), "this", wanted)
    assert isinstance(error, extras.MissingExtraError)
    assert str(error) == f"this {needs(named)}"


def test_a_module_that_no_extra_brings_is_not_taken_for_an_extra() -> None:
    error = ModuleNotFoundError(name="sniffio")
    assert extras.missing_extra(error, "this", "client") is error


def test_the_command_without_its_extra_is_one_line_and_exit_code_1(bare_python: Path) -> None:
    sentence = f"coregw: the coregw command {needs('cli')}\n"
    assert run(bare_python.with_name("coregw"), "ls", code=1) == sentence
    assert run(bare_python, "-m", "coregw", code=1) == sentence


def without(*packages: str, command: str) -> str:
    """The output of a command in an interpreter that can't import some packages; its exit code must be 1."""
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({packages!r}))\n"
        f"sys.argv[1:] = {command.split()!r}\n"
        "from coregw.__main__ import main\n"
        "main()\n"
    )
    return run(sys.executable, "-c", code, code=1)


@pytest.mark.parametrize("command", ["serve", "serve-plants"])
@pytest.mark.parametrize("missing", ["litestar", "rocksdict", "uvicorn", "msgspec"])
def test_a_server_command_without_its_extra_is_one_line(command: str, missing: str, tmp_path: Path) -> None:
    output = without(missing, command=f"{command} --data {tmp_path} --port 0")
    assert f"coregw: coregw {command} {needs('server')}" in output.splitlines()


@pytest.mark.parametrize("missing", ["pycurl", "msgspec"])
def test_a_client_command_without_its_extra_is_one_line(missing: str) -> None:
    output = without(missing, command="ls bafkqaaa")
    assert output == f"coregw: coregw ls {needs('cli')}\n"


@pytest.mark.parametrize("command", ["doctor", "heal --from http://127.0.0.1:9"])
def test_a_command_with_the_extra_server_alone_names_the_other_one(command: str) -> None:
    output = without("pycurl", command=command)
    assert needs("client") in output


def test_a_missing_module_of_coregw_is_not_taken_for_a_missing_extra() -> None:
    output = without("coregw.client.query", command="ls bafkqaaa")
    assert "needs the" not in output
    assert "coregw.client.query" in output
