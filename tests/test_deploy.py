"""The dashboard and the alerts of deploy/ name metrics and labels that the gateway exports.

The files for several gateways agree with each other and with the settings; `make test-servers ARGS=nginx` runs them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from coregw.gateway.metrics import FAMILIES, Kind
from coregw.gateway.settings import Settings
from coregw.store.addresses import BucketAddress, check_database_address
from coregw.store.postgres import open_store
from servers import postgres_binaries, require_wanted, weed_program
from tables import rows

DEPLOY = Path(__file__).parent.parent / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "coregw.json").read_text("utf-8"))
ALERTS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"][0][
    "rules"
]

ADDED_BY_PROMETHEUS = {"instance", "job", "le"}
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[tuple[str, str]]:
    """What is asked, with the title of the panel or the name of the alert."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]


def family_of(name: str) -> str:
    """The family of a series: the series of a histogram have a suffix."""
    for suffix in OF_HISTOGRAMS:
        base = name.removesuffix(suffix)
        if base != name and base in FAMILIES:
            assert FAMILIES[base].kind is Kind.HISTOGRAM
            return base
    return name


@rows(("title", "expression"), list(expressions()))
def test_every_metric_and_label_exists(title: str, expression: str) -> None:
    names = set(re.findall(r"\bcoregw_[a-z_]+", expression)) - {"coregw"}
    labels: set[str] = set()
    for name in names:
        family = family_of(name)
        assert family in FAMILIES, f"{title}: {name}"
        if FAMILIES[family].kind is Kind.HISTOGRAM:
            assert family != name, f"{title}: a histogram is asked by its series: {name}"
        labels |= set(FAMILIES[family].labels)
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert {each.strip() for each in group.split(",")} <= labels | ADDED_BY_PROMETHEUS, title
    for selector in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)) <= labels | ADDED_BY_PROMETHEUS, title


def test_counters_are_asked_by_their_rate() -> None:
    for title, expression in expressions():
        for name in re.findall(r"\bcoregw_[a-z_]+_total", expression):
            assert re.search(rf"(rate|increase)\({name}", expression), title


def test_legends_use_labels_of_the_expression() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            families = {family_of(name) for name in re.findall(r"\bcoregw_[a-z_]+", target["expr"])}
            known = {label for family in families for label in FAMILIES[family].labels} | ADDED_BY_PROMETHEUS
            assert used <= known, panel["title"]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {family_of(name) for _, text in expressions() for name in re.findall(r"\bcoregw_[a-z_]+", text)}
    assert set(FAMILIES) - shown == set()


def test_alerts_say_what_to_do() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} <= set(rule["annotations"])
        assert "$labels.instance" in rule["annotations"]["summary"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_files_for_several_gateways_agree() -> None:
    cluster = DEPLOY / "cluster"
    compose: dict[str, Any] = yaml.safe_load((cluster / "compose.yml").read_text("utf-8"))
    gateways = {name: each for name, each in compose["services"].items() if name.startswith("gateway")}
    site = (DEPLOY / "nginx" / "gateways.conf").read_text("utf-8")
    ports = re.findall(r"server 127\.0\.0\.1:(\d+) ", site)
    assert len(ports) == len(gateways) == 3
    assert ports == [each["environment"]["COREGW_PORT"] for each in gateways.values()]
    script = (cluster / "gateways.sh").read_text("utf-8")
    assert f'"${{PORTS:={" ".join(ports)}}}"' in script
    known = {f"COREGW_{name.upper()}" for name in Settings.__struct_fields__}
    for each in gateways.values():
        variables = each["environment"]
        assert {name for name in variables if name.startswith("COREGW_")} <= known
        check_database_address(variables["COREGW_STORE"])
        assert BucketAddress.parse(variables["COREGW_BUCKET"]).bucket == "coregw"
        assert each["network_mode"] == "service:network"  # or they would have to listen on the network
        assert {*each["depends_on"]} <= {*compose["services"]}
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (cluster / source).is_file(), volume
    [setting] = [word for word in compose["services"]["postgres"]["command"] if word.startswith("max_connections=")]
    each = signature(open_store).parameters["connections"].default + 1
    assert int(setting.partition("=")[2]) >= len(gateways) * each + 10  # docs/scaling.md


def test_the_files_for_one_gateway_agree() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), volume
    image = (DEPLOY / "Containerfile").read_text("utf-8")
    variables = dict(re.findall(r"(COREGW_\w+)=(\S+)", image))
    settings = Settings.load(variables)
    assert settings.management_host_and_port == ("0.0.0.0", 9090)  # noqa: S104 - inside of a container
    prometheus: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    [job] = prometheus["scrape_configs"]
    assert job["job_name"] == "coregw"  # the alerts name it
    assert job["static_configs"][0]["targets"] == ["gateway:9090"]
    assert prometheus["rule_files"] == ["alerts.yml"]


def compose_file(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", ["compose.yml", "cluster/compose.yml"])
def test_the_head_of_a_compose_file_sets_its_variables(name: str, tmp_path: Path) -> None:
    """Its command writes every variable that has no default to .env, and the address that it names is published."""
    text = (DEPLOY / name).read_text("utf-8")
    head = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    needed = {*re.findall(r"\$\{(\w+):\?\}", text)}
    [command] = re.findall(r"(?m)^#   (.* > \.env)$", head)
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True)
    lines = (tmp_path / ".env").read_text("ascii").splitlines()
    assert needed == {line.partition("=")[0] for line in lines}
    assert all(re.fullmatch(r"\w+=[0-9a-f]{32,}", line) for line in lines)
    assert {*re.findall(r"(?<!\$)\$\{?(\w+)", text.replace(head, ""))} == needed
    for port in re.findall(r"http://127\.0\.0\.1:(\d+)|at port (\d+) of the host", head):
        assert f'"127.0.0.1:{"".join(port)}:' in text


def test_every_name_between_the_services_exists() -> None:
    """Hosts, ports, paths inside of containers and variables are those of the image and of the other services."""
    image = (DEPLOY / "Containerfile").read_text("utf-8")
    exposed = re.findall(r"(?m)^EXPOSE (.*)$", image)[0].split()
    [volume] = re.findall(r"(?m)^VOLUME (\S+)$", image)
    services = compose_file("compose.yml")["services"]
    assert services["gateway"]["volumes"] == [f"store:{volume}"]
    assert services["gateway"]["ports"] == ["127.0.0.1:8080:8080"]
    assert f"COREGW_DATA={volume}/" in image
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    host, port = prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0].split(":")
    assert host in services
    assert port in exposed
    assert "./prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]  # where the image has its file
    mounts = {volume.split(":")[0]: volume.split(":")[1] for volume in services["grafana"]["volumes"]}
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    [provider] = compose_file("grafana/provisioning/dashboards/coregw.yml")["providers"]
    assert mounts["./grafana/coregw.json"].rpartition("/")[0] == provider["options"]["path"]
    [source] = compose_file("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"  # the port of its image
    assert "prometheus" in services
    [chosen] = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "datasource"]
    assert chosen["query"] == source["type"]
    cluster = compose_file("cluster/compose.yml")["services"]
    variables = cluster["gateway1"]["environment"]
    assert "@postgres/" in variables["COREGW_STORE"]
    assert "endpoint=http://bucket:8333&" in variables["COREGW_BUCKET"]  # the port of weed's S3 server
    assert {"postgres", "bucket"} <= {*cluster}
    assert {*cluster["bucket"]["environment"]} == {*re.findall(r"\$\$(\w+)", cluster["bucket"]["command"][0])}
    gateways = [cluster[f"gateway{number}"] for number in (1, 2, 3)]
    addresses = [each["environment"]["COREGW_MANAGEMENT_ADDRESS"] for each in gateways]
    taken = [*addresses, *(f"127.0.0.1:{each['environment']['COREGW_PORT']}" for each in gateways)]
    assert len({*taken}) == 6  # they share a network
    assert cluster["nginx"]["network_mode"] == gateways[0]["network_mode"] == "service:network"
    assert cluster["network"]["ports"] == ["127.0.0.1:8080:80"]  # nginx listens at 80
    known = {f"COREGW_{name.upper()}" for name in Settings.__struct_fields__}
    for each in [services["gateway"], *gateways]:
        assert {*each["environment"]} <= known | {"GATEWAY_ADMIN_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_the_image_has_the_locked_versions() -> None:
    locked = re.compile(r"(?m)^([a-z0-9._-]+==\S+)")
    image = {*locked.findall((DEPLOY / "requirements.lock").read_text("utf-8"))}
    assert image < {*locked.findall((DEPLOY.parent / "requirements.lock").read_text("utf-8"))}
    assert {line.split("==")[0] for line in image} >= {"asyncpg", "litestar", "obstore", "pycurl", "rocksdict"}


def test_the_unit_starts_a_gateway() -> None:
    unit = (DEPLOY / "systemd" / "coregw.service").read_text("utf-8")
    [command] = re.findall(r"(?m)^ExecStart=/opt/coregw/bin/coregw serve (.*)$", unit)
    given = dict(zip(command.split()[::2], command.split()[1::2], strict=True))
    assert given["--config"].startswith("/etc/coregw/")  # ConfigurationDirectory
    assert given["--data"] == "/var/lib/coregw"  # StateDirectory
    [directories] = re.findall(r"(?m)^StateDirectory=(.*)$", unit)
    page = (DEPLOY.parent / "docs" / "backups.md").read_text("utf-8")
    [(destination, data)] = re.findall(r"(?m)^coregw backup (\S+) --data (\S+) +# as root$", page)
    assert {destination, data} == {f"/var/lib/{each}" for each in directories.split()}
    [seconds] = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit)
    assert int(seconds) > Settings().shutdown_seconds


@pytest.mark.parametrize(
    "command",
    [
        ("promtool", "check", "config", "--lint=none", "prometheus/prometheus.yml"),
        ("systemd-analyze", "security", "--offline=true", "--threshold=20", "systemd/coregw.service"),
    ],
    ids=lambda command: command[0],
)
def test_tools_accept_the_files(command: tuple[str, ...]) -> None:
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    subprocess.run([program, *command[1:]], cwd=DEPLOY, check=True, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["compose.yml", "cluster/compose.yml"])
def test_compose_accepts_the_files(name: str) -> None:
    """The schema of compose files, and what its interpolation makes of the variables."""
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    needed = {*re.findall(r"\$\{(\w+):\?\}", (DEPLOY / name).read_text("utf-8"))}
    command = [program, "-f", DEPLOY / name, "config"]
    given = os.environ | {variable: f"value-of-{variable}" for variable in needed}
    done = subprocess.run(command, env=given, check=True, capture_output=True, text=True)
    assert {*re.findall(r"value-of-(\w+)", done.stdout)} == needed
    for variable in needed:
        missing = {key: value for key, value in given.items() if key != variable}
        assert subprocess.run(command, env=missing, check=False, capture_output=True).returncode != 0


def test_the_servers_know_the_options_that_compose_gives_them() -> None:
    """Those of the wheels, which have the versions of the images; run by `make test-servers`."""
    require_wanted()
    services = compose_file("cluster/compose.yml")["services"]
    [script] = [text.replace("$$", "$") for text in services["bucket"]["command"]]
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    [options] = re.findall(r"exec weed server (.*)", script)
    weed, binaries = weed_program(), postgres_binaries()
    assert binaries is not None
    said = subprocess.run([weed, "help", "server"], check=False, capture_output=True, text=True)
    for option in options.split():
        assert re.search(rf"(?m)^\s+{option.partition('=')[0]}\b", said.stdout + said.stderr), option
    version = subprocess.run([weed, "version"], check=True, capture_output=True, text=True).stdout
    assert services["bucket"]["image"].partition(":")[2] in version
    postgres = services["postgres"]
    initdb = subprocess.run([binaries / "initdb", "--help"], check=True, capture_output=True, text=True).stdout
    assert f"{postgres['environment']['POSTGRES_INITDB_ARGS']} " in initdb
    probe = postgres["healthcheck"]["test"][1:]
    probed = subprocess.run(
        [binaries / probe[0], *probe[1:], "-h", "127.0.0.1", "-p", "1"], check=False, capture_output=True
    )
    assert probed.returncode == 2  # no answer; 3 would be wrong usage


def test_shell_scripts_parse() -> None:
    for script in DEPLOY.rglob("*.sh"):
        subprocess.run(["sh", "-n", script], check=True)
        assert script.stat().st_mode & 0o100, script
