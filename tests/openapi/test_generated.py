"""Clients that others' generators make from the OpenAPI documents. They compile, and call a gateway.

`make test-clients ARGS=openapi` installs the generators; without them, these tests are skipped.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

import serving
from coregw.plants.messages import document as plant_document

FOLDER = Path(__file__).parent
TOOLS = os.environ.get("COREGW_TEST_OPENAPI", "")
"""A folder with the npm packages of `package.json`."""

GENERATOR = os.environ.get("COREGW_TEST_OPENAPI_GENERATOR", "")
"""The program of openapi-generator, a JAR."""

OAPI_CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

pytestmark = pytest.mark.skipif(not TOOLS, reason="run by `make test-clients ARGS=openapi`")

COUNTER_EXAMPLES = {"no-invalid-media-type-examples", "no-invalid-parameter-examples"}
"""Rules that examples of refused requests break on purpose."""

NEVER_SUCCEEDS = "operation-2xx-response"
"""The rule that the paths below a raw block break: they are always refused."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Process]:
    with serving.process(tmp_path_factory.mktemp("openapi") / "data", serving.ADMIN) as process:
        yield process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, running: serving.Process) -> Path:
    """A folder with both documents, and the npm packages."""
    made = tmp_path_factory.mktemp("generated")
    (made / "gateway.json").write_bytes(httpx2.get(f"{running.url}/openapi.json").content)
    (made / "plants.json").write_bytes(plant_document())
    (made / "node_modules").symlink_to(Path(TOOLS) / "node_modules")
    (made / "package.json").write_text('{"type": "module"}', "utf-8")
    return made


def run(folder: Path, *command: object) -> str:
    """Run a command in the folder. Returns what it prints."""
    done = subprocess.run(
        [str(each) for each in command], cwd=folder, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["gateway", "plants"])
def test_redocly_finds_only_examples_of_refused_requests(folder: Path, name: str) -> None:
    found = subprocess.run(
        ["node_modules/.bin/redocly", "lint", f"{name}.json", "--format=json", "--max-problems=1000"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"},
    )
    report: dict[str, Any] = json.loads(found.stdout[found.stdout.index("{") :])
    assert report["totals"]["errors"] == 0
    document = json.loads((folder / f"{name}.json").read_bytes())
    for problem in report["problems"]:
        pointer = problem["location"][0]["pointer"]
        if problem["ruleId"] == NEVER_SUCCEEDS:
            assert pointer.startswith("#/paths/~1ipfs~1{cid}~1{path}/")
        else:
            assert problem["ruleId"] in COUNTER_EXAMPLES
            assert is_refused(document, places_of(pointer)), problem


@pytest.mark.parametrize("name", ["gateway", "plants"])
def test_spectral_finds_only_examples_of_refused_requests(folder: Path, name: str) -> None:
    (folder / "spectral.yaml").write_text('extends: ["spectral:oas"]\n', "utf-8")
    found = subprocess.run(
        ["node_modules/.bin/spectral", "lint", f"{name}.json", "--ruleset=spectral.yaml", "--format=json", "--quiet"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"SCARF_ANALYTICS": "false"},
    )
    assert found.stdout.startswith("["), found.stderr
    document = json.loads((folder / f"{name}.json").read_bytes())
    for problem in json.loads(found.stdout):
        if problem["code"] == "operation-success-response":
            assert problem["path"][:2] == ["paths", "/ipfs/{cid}/{path}"]  # always refused
        else:
            assert problem["code"] == "oas3-valid-media-example", problem
            assert is_refused(document, problem["path"]), problem


def places_of(pointer: str) -> list[str]:
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.removeprefix("#/").split("/")]


def is_refused(document: dict[str, Any], places: list[str]) -> bool:
    """Whether the example at this path of the document, which is one of an operation, gets an error."""
    operation = document["paths"][places[1]][places[2]]
    name = places[places.index("examples") + 1]
    return any(
        name in content.get("examples", {})
        for status, response in operation["responses"].items()
        if int(status) >= 400
        for content in response["content"].values()
    )


def test_typescript_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    run(folder, "node_modules/.bin/openapi-typescript", "gateway.json", "--output", "gateway.ts")
    run(folder, "node_modules/.bin/openapi-typescript", "plants.json", "--output", "plants.ts")
    shutil.copy(FOLDER / "calls.ts", folder)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable"]
    run(folder, "node_modules/.bin/tsc", *options, "calls.ts", "plants.ts")
    assert json.loads(run(folder, "node", "calls.js", running.url)) == {
        "target": "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq",
        "kinds": ["map_step"],
        "differences": 0,
        "absent": "path_not_found",
    }


CALLED = {
    "target": "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq",
    "kinds": ["map_step"],
    "differences": 0,
    "payload": "hello",
    "absent": "path_not_found",
}
"""What the programs print that call a gateway with a client of a generator."""


def compiled(folder: Path, program: str) -> Path:
    """A program in TypeScript and the client that it uses, compiled."""
    shutil.copy(FOLDER / f"{program}.ts", folder)
    built = folder / f"built_{program}"
    options = ["--strict", "--target", "es2022", "--module", "commonjs", "--moduleResolution", "node10"]
    library = ["--lib", "es2022,dom,dom.iterable", "--outDir", built]
    run(folder, "node_modules/.bin/tsc", *options, *library, f"{program}.ts")
    (built / "package.json").write_text('{"type": "commonjs"}', "utf-8")
    return built / f"{program}.js"


def test_hey_api_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    run(folder, "node_modules/.bin/openapi-ts", "-i", "plants.json", "-o", "hey_plants", "-c", "@hey-api/client-fetch")
    run(folder, "node_modules/.bin/openapi-ts", "-i", "gateway.json", "-o", "hey", "-c", "@hey-api/client-fetch")
    assert json.loads(run(folder, "node", compiled(folder, "hey_calls"), running.url)) == CALLED


def openapi_generator(folder: Path, generator: str, output: str, *options: str, document: str = "gateway") -> None:
    """Generate a client of the gateway by openapi-generator."""
    if not GENERATOR:
        pytest.skip("run by `make test-clients ARGS=openapi-all`")
    generate = ["java", "-jar", GENERATOR, "generate", "--input-spec", f"{document}.json", "--output", output]
    run(folder, *generate, "--generator-name", generator, *options)


def test_openapi_generator_in_typescript_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    openapi_generator(folder, "typescript-fetch", "fetch")
    assert json.loads(run(folder, "node", compiled(folder, "fetch_calls"), running.url)) == CALLED


def test_openapi_generator_in_python_calls(
    folder: Path, running: serving.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    openapi_generator(folder, "python", "openapi-python")
    monkeypatch.syspath_prepend(folder / "openapi-python")
    made: Any = importlib.import_module("openapi_client")
    with made.ApiClient(made.Configuration(host=running.url)) as client:
        cid = made.CasApi(client).put_payload(b"hello", codec="raw").cid
        root = made.RootsApi(client).create_root(made.ArcMap(arcs={"docs/readme": cid})).root
        asked = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["docs", "readme"]}
        resolved = made.ResolveApi(client).resolve(made.ResolveRequest(**asked))
        with pytest.raises(made.exceptions.NotFoundException) as absent:
            made.ResolveApi(client).resolve(made.ResolveRequest(**asked | {"segments": ["missing"]}))
        assert {
            "target": resolved.target,
            "kinds": [step.actual_instance.kind for step in resolved.prooflist.steps],
            "differences": len(made.DiffApi(client).diff(root, root).entries),
            "payload": made.CasApi(client).get_payload(cid).decode(),
            "absent": json.loads(absent.value.body)["error"],
        } == CALLED


def test_openapi_generator_in_go_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    named = ["--git-user-id", "coregw", "--git-repo-id", "client"]
    options = "--additional-properties=packageName=client,useOneOfDiscriminatorLookup=true"
    openapi_generator(folder, "go", "go", options, *named)
    (folder / "go" / "calls").mkdir()
    shutil.copy(FOLDER / "calls.go", folder / "go" / "calls" / "main.go")
    run(folder / "go", "go", "build", "-mod=mod", "-o", folder / "calls", "./calls")
    assert json.loads(run(folder, folder / "calls", running.url)) == CALLED


def test_openapi_generator_in_java_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    openapi_generator(folder, "java", "java")
    shutil.copy(FOLDER / "Calls.java", folder / "java" / "src" / "main" / "java")
    maven = ["mvn", "--batch-mode", "--quiet", "-Dmaven.test.skip=true", "-Dmdep.outputFile=libraries"]
    run(folder / "java", *maven, "compile", "dependency:build-classpath")
    libraries = (folder / "java" / "libraries").read_text("utf-8").strip()
    printed = run(folder / "java", "java", "-cp", f"target/classes{os.pathsep}{libraries}", "Calls", running.url)
    assert json.loads(printed) == CALLED


def without_discriminators(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A document whose schemas tell alternatives apart by their members alone."""
    if isinstance(value, list):
        return [without_discriminators(each) for each in value]
    if not isinstance(value, dict):
        return value
    hints = {"discriminator"} if "oneOf" in value else set()
    return {name: without_discriminators(each) for name, each in value.items() if name not in hints}


def test_openapi_generator_in_rust_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    # For a discriminator, it generates an enum whose tag serde removes, and structs that require the tag as a member.
    document = without_discriminators(json.loads((folder / "gateway.json").read_bytes()))
    (folder / "plain.json").write_text(json.dumps(document), "utf-8")
    openapi_generator(folder, "rust", "rust", document="plain")
    (folder / "rust" / "src" / "bin").mkdir()
    shutil.copy(FOLDER / "calls.rs", folder / "rust" / "src" / "bin")
    run(folder / "rust", "cargo", "add", "--quiet", "tokio@1", "--features", "macros,rt")
    built = Path(TOOLS) / "rust"  # kept: it has some hundred dependencies
    run(folder / "rust", "cargo", "build", "--quiet", "--no-default-features", "--bin", "calls", "--target-dir", built)
    assert json.loads(run(folder, built / "debug" / "calls", running.url)) == CALLED


def test_oapi_codegen_compiles_and_calls(folder: Path, running: serving.Process) -> None:
    if not GENERATOR:
        pytest.skip("run by `make test-clients ARGS=openapi-all`")
    module = folder / "codegen"
    (module / "calls").mkdir(parents=True)
    (module / "go.mod").write_text("module github.com/coregw/client\n\ngo 1.24\n", "utf-8")
    shutil.copy(FOLDER / "codegen_calls.go", module / "calls" / "main.go")
    generate = ["go", "run", OAPI_CODEGEN, "-generate", "types,client", "-package", "client", "-o", "client.go"]
    run(module, *generate, folder / "gateway.json")
    run(module, "go", "mod", "tidy")
    run(module, "go", "build", "-o", module / "program", "./calls")
    assert json.loads(run(module, module / "program", running.url)) == CALLED


@pytest.fixture
def generated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package that openapi-python-client makes of the gateway's document."""
    generate = [sys.executable, "-m", "openapi_python_client", "generate", "--overwrite", "--fail-on-warning"]
    run(folder, *generate, "--path", "gateway.json", "--output-path", "python", "--config", FOLDER / "generator.yaml")
    monkeypatch.syspath_prepend(folder / "python")
    return importlib.import_module("coregw_client")


def test_python_calls(generated: ModuleType, running: serving.Process) -> None:
    models = importlib.import_module("coregw_client.models")
    file = importlib.import_module("coregw_client.types").File
    with generated.Client(base_url=running.url) as client:

        def call(name: str, **arguments: object) -> Any:  # noqa: ANN401 - a struct that was generated
            return importlib.import_module(f"coregw_client.api.{name}").sync(client=client, **arguments)

        cid = call("cas.put_payload", body=file(payload=b"hello"), codec="raw").cid
        root = call("roots.create_root", body=models.ArcMap.from_dict({"arcs": {"docs/readme": cid}})).root
        asked = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["docs", "readme"]}
        resolved = call("resolve.resolve", body=models.ResolveRequest.from_dict(asked))
        assert (resolved.target, [each.kind.value for each in resolved.prooflist.steps]) == (cid, ["map_step"])
        assert call("diff.diff", first=root, second=root).entries == []
        assert call("cas.get_payload", cid=cid).payload.read() == b"hello"
        absent = call("resolve.resolve", body=models.ResolveRequest.from_dict(asked | {"segments": ["missing"]}))
        assert absent.error == "path_not_found"
