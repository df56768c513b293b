"""Lints the chart, renders it for each set of values, and validates what comes out against Kubernetes' own schemas.

    python -m tests.deploy.chart --helm PATH [--kubernetes 1.37]

The schemas are those that the package kubernetes-validate carries, strictly: a misspelt field is an error. Of custom
resources (ServiceMonitor, PrometheusRule, Certificate) it has none: of these only the YAML is read. Nothing is
deployed.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from stratalog.jobs.command.listen_at import check_listener
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.console import main as console

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "stratalog"
CUSTOM = {"ServiceMonitor", "PrometheusRule", "Certificate"}
FAULTS = {
    "persistence": ({"storage": {"url": "s3://b/p"}, "persistence": {"existingClaim": "c"}}, "not on both"),
    "pdb": ({"pdb": {"maxUnavailable": 2}}, "more than half"),
    "grace": ({"terminationGracePeriodSeconds": 60}, "more than half of terminationGracePeriodSeconds"),
    "tls": ({"tls": {"enabled": False}}, "tls.enabled is false"),
    "sasl": ({"sasl": {"enabled": False}}, "sasl.enabled is false"),
    "hosts": ({"externalAccess": {"enabled": True, "hosts": ["a"]}}, "1 names for 3 brokers"),
    "console, TLS": (
        {
            "console": {"enabled": True},
            "tls": {"enabled": False},
            "listeners": {"client": {"protocol": "SASL_PLAINTEXT"}, "external": {"protocol": "SASL_PLAINTEXT"}},
        },
        "console.enabled is true without TLS",
    ),
    "console, PLAIN": ({"console": {"enabled": True}, "sasl": {"mechanism": "PLAIN"}}, "SCRAM credentials"),
    "console, no roots": ({"console": {"enabled": True}, "persistence": {"enabled": False}}, "does not reach"),
    "unknown": ({"replicas": 3}, "replicas"),
}
"""Values that the chart refuses, and what it says."""


def value_files() -> list[Path | None]:
    """The defaults, and each example."""
    return [None, *sorted((CHART / "examples").glob("*.yaml"))]


CONSOLES: tuple[dict[str, Any], ...] = (
    {"console": {"enabled": True}},
    {
        "console": {"enabled": True, "allowChanges": True, "trustedProxies": ["10.0.0.1"]},
        "tls": {"clientAuth": "required"},
    },
    {
        "console": {"enabled": True, "allowChanges": True, "allowPlaintext": True},
        "persistence": {"existingClaim": "logs"},
        "tls": {"enabled": False},
        "sasl": {"enabled": False},
        "authorizer": {"enabled": False},
        "listeners": {"client": {"protocol": "PLAINTEXT"}, "external": {"protocol": "PLAINTEXT"}},
    },
)
"""Values with a console: read-only; with changes by a login and a certificate; without both."""


def _template(helm: str) -> list[str]:
    return [helm, "template", "logs", str(CHART), "--namespace", "kafka", "--kube-version", "1.33.0"]


def rendered(helm: str, values: Path | dict[str, Any] | None) -> list[dict[str, Any]]:
    """The manifests for values, or for a file of them."""
    if isinstance(values, dict):
        done = _run([*_template(helm), "--values", "-"], yaml.safe_dump(values))
    else:
        done = _run([*_template(helm), *(() if values is None else ("--values", str(values)))])
    return [each for each in yaml.safe_load_all(done) if each]


def _run(command: Sequence[str], stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def invalid(manifests: Sequence[dict[str, Any]], version: str) -> Iterator[str]:
    """What Kubernetes' schemas find."""
    import kubernetes_validate

    for manifest in manifests:
        named = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] in CUSTOM:
            continue
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as reason:
            yield f"{named}: {'.'.join(map(str, reason.path))}: {reason.message}"


def scripts(manifests: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The shell programs: what starts a pod, what the job of users runs, what starts the console."""
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and "start" in manifest.get("data", {}):
            yield manifest["data"]["start"]
        elif manifest["kind"] in ("Job", "Deployment"):
            yield manifest["spec"]["template"]["spec"]["containers"][0]["command"][-1]


def console_faults(script: str) -> Iterator[str]:
    """What `strata console` answers to the flags that a script gives it, but for files, which are not here."""
    started = re.search(r"exec strata (console [^\0]*)", script.replace("\\\n", " "))
    if started is None:
        return
    words = shlex.split(started[1])[1:]
    try:
        given = console.checked(words)
        given.tls_certificate = given.tls_certificate and __file__
        given.tls_key = given.tls_key and __file__
        check_listener(given)
    except (UsageError, SystemExit) as reason:
        yield f"strata console {' '.join(words)}: {reason}"


def refused(helm: str, values: dict[str, Any]) -> str:
    """What the chart answers to bad values; "" when it takes them."""
    command = [*_template(helm), "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--kubernetes", default="1.37", help="version of the schemas")
    given = parser.parse_args(arguments)
    print(_run([given.helm, "lint", "--strict", str(CHART)]).strip())
    found: list[str] = []
    for values in (*value_files(), *CONSOLES):
        manifests = rendered(given.helm, values)
        kinds = Counter(each["kind"] for each in manifests)
        name = values.name if isinstance(values, Path) else "a console" if values else "values.yaml"
        print(f"{name}: {dict(sorted(kinds.items()))}")
        found += [f"{name}: {fault}" for fault in invalid(manifests, given.kubernetes)]
        for script in scripts(manifests):
            _run(["sh", "-n"], script)
            found += console_faults(script)
    for name, (bad, words) in FAULTS.items():
        answer = refused(given.helm, bad)
        if words not in answer:
            found.append(f"bad values {name} are not refused with '{words}': {answer or 'rendered'}")
    print(*found, sep="\n")
    print(f"{len(found)} faults; {len(FAULTS)} bad values tried")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
