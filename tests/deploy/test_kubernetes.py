"""The manifests: rendered by kustomize, checked against pinned schemas, and against what the daemon's flags say."""

import copy
import re
import subprocess

import cloudcoil.models.prometheus_operator.v1 as prometheus_operator
import kubernetes_validate
import pytest
import yaml

import kserve_model
from conftest import NOTES, ROOT

KUBERNETES = ROOT / "deploy/kubernetes"
VERSIONS = ["1.31.0", "1.37.0"]  # the oldest and the newest that the manifests are checked for
OVERLAYS = ["cpu", "gpu", "kserve"]
CORE = {"ConfigMap", "Service", "PersistentVolumeClaim", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"}


@pytest.fixture(scope="session")
def rendered(kubectl):
    def render(overlay):
        result = subprocess.run([kubectl, "kustomize", KUBERNETES / "overlays" / overlay], capture_output=True, text=True)
        assert result.returncode == 0 and not result.stderr, result.stderr
        return {document["kind"]: document for document in yaml.safe_load_all(result.stdout)}

    return {overlay: render(overlay) for overlay in OVERLAYS}


def validate(document, version):
    kubernetes_validate.validate(copy.deepcopy(document), version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
def test_core_resources_fit_the_strict_schemas(rendered, overlay, version):
    documents = rendered[overlay]
    assert set(documents) == CORE | {"ServiceMonitor"}
    for kind in CORE:
        validate(documents[kind], version)
    NOTES.append(f"kubernetes: overlay {overlay}: {len(CORE)} resources fit the strict schemas of {version} (kubernetes-validate {kubernetes_validate.version.__version__})")


def test_the_validator_sees_a_wrong_field(rendered):
    broken = copy.deepcopy(rendered["cpu"]["Deployment"])
    broken["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        validate(broken, VERSIONS[-1])


def monitor_faults(document):
    """pydantic drops what it does not know: a field that does not come back is no field of the resource."""
    back = prometheus_operator.ServiceMonitor.model_validate(document).model_dump(by_alias=True, exclude_unset=True, mode="json")
    return [] if back["spec"] == document["spec"] else [back["spec"]]


def test_service_monitor_fits_the_operators_model(rendered):
    document = rendered["cpu"]["ServiceMonitor"]
    assert not monitor_faults(document)
    typo = copy.deepcopy(document)
    typo["spec"]["endpoints"][0]["intervall"] = "3s"
    assert monitor_faults(typo)


@pytest.mark.parametrize("version", VERSIONS)
def test_kserve_resources_fit_its_sdk(rendered, version):
    documents = rendered["kserve"]
    runtime, service = documents["ServingRuntime"], documents["InferenceService"]
    assert (runtime["apiVersion"], service["apiVersion"]) == ("serving.kserve.io/v1alpha1", "serving.kserve.io/v1beta1")
    faults = [*kserve_model.check("V1alpha1ServingRuntimeSpec", runtime["spec"], "runtime", version),
              *kserve_model.check("V1beta1InferenceServiceSpec", service["spec"], "service", version)]
    assert not faults, faults
    runtime = copy.deepcopy(runtime)
    runtime["spec"]["containers"][0]["portz"] = []
    runtime["spec"]["protocolVersion"] = ["v2"]
    assert len([*kserve_model.check("V1alpha1ServingRuntimeSpec", runtime["spec"], "runtime", version)]) == 2
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in [known["name"] for known in runtime["spec"]["supportedModelFormats"]]


def options(text):
    return dict(re.findall(r"^([a-z-]+) = (.*)$", text, re.MULTILINE))


def pod_and_options(documents):
    """The pod's specification and the daemon's options in it, flags before the file."""
    if "ServingRuntime" in documents:
        pod, found = documents["ServingRuntime"]["spec"], {}
    else:
        pod, found = documents["Deployment"]["spec"]["template"]["spec"], options(documents["ConfigMap"]["data"]["decomposekd.conf"])
    flags = [flag[2:].split("=", 1) for flag in pod["containers"][0]["args"] if "=" in flag]
    return pod, {**found, **dict(flags)}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_c68_the_grace_period_outlasts_the_drain(rendered, overlay):
    pod, found = pod_and_options(rendered[overlay])
    grace = rendered[overlay]["InferenceService"]["spec"]["predictor"] if overlay == "kserve" else pod
    drain = int(found["drain-grace-ms"]) + int(found["drain-limit-ms"])
    assert grace["terminationGracePeriodSeconds"] * 1000 >= drain + 5000
    readiness = pod["containers"][0]["readinessProbe"]
    assert int(found["drain-grace-ms"]) >= 2000 * readiness["periodSeconds"] * readiness["failureThreshold"], "endpoints learn of it within the grace"
    assert "lifecycle" not in pod["containers"][0], "the image has no need of a hook"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_c52_shm_is_memory_of_a_stated_size(rendered, overlay):
    pod, _ = pod_and_options(rendered[overlay])
    name = next(mount["name"] for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == "/dev/shm")
    volume = next(volume for volume in pod["volumes"] if volume["name"] == name)
    assert volume["emptyDir"]["medium"] == "Memory" and volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_c74_the_pod_is_restricted(rendered, overlay):
    pod, _ = pod_and_options(rendered[overlay])
    container = pod["containers"][0]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"] and security["capabilities"] == {"drop": ["ALL"]}
    assert security.get("runAsNonRoot") or pod["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_probes_and_threads_agree(rendered, overlay):
    pod, found = pod_and_options(rendered[overlay])
    container = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert int(found["port"]) in ports.values()
    for probe, path in (("startupProbe", "ready"), ("readinessProbe", "ready"), ("livenessProbe", "live")):
        get = container[probe]["httpGet"]
        assert get["path"] == f"/v2/health/{path}" and ports.get(get["port"], get["port"]) == int(found["port"])
    if overlay != "gpu":
        assert found["threads"] == container["resources"]["limits"]["cpu"]
    else:
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1" and found["backend"] == "cuda"


def test_the_daemon_takes_the_manifests_options(rendered, tmp_path, packages):
    """By the packaged daemon itself: paths aside, a name or a value that it does not know fails here."""
    program = tmp_path / "root"
    subprocess.run(["dpkg-deb", "-x", packages["decomposekd"], program], check=True)
    for overlay in OVERLAYS:
        _, found = pod_and_options(rendered[overlay])
        found = {key: value for key, value in found.items() if key not in ("model", "backend")}
        path = tmp_path / f"{overlay}.conf"
        path.write_text("".join(f"{key} = {value}\n" for key, value in found.items()))
        result = subprocess.run([program / "usr/bin/decomposekd", "--config", path, "--check-config", "--max-tokens=64"], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


def test_the_autoscalers_metric_is_what_the_adapter_makes(rendered):
    metric = rendered["cpu"]["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    rule = yaml.safe_load((KUBERNETES / "components/autoscaling/adapter-values.yaml").read_text())["rules"]["custom"][0]
    assert rule["name"]["as"] == metric
    source = (ROOT / "server/metrics_text.c").read_text() + "".join(path.read_text() for path in (ROOT / "server").glob("metrics*.[ch]"))
    for series in set(re.findall(r"decomposek_\w+", rule["metricsQuery"] + rule["seriesQuery"])):
        assert re.sub(r"_(sum|count)$", "", series) in source, series
