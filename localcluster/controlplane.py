"""`ControlPlane`: etcd, API server, controller manager and scheduler, as ordinary processes.

No root, nothing outside its own directories, one free port on loopback (the API server's; etcd
listens on a Unix socket). Clients show a token (`token`, of a cluster administrator) or, as the
parts of the cluster do, a certificate; authorization is RBAC with the node authorizer.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localcluster import network
from localcluster.binaries import Progress, ensure, print_progress
from localcluster.ledger import Ledger, TeardownError, sweep
from localcluster.pki import Authority
from localcluster.processes import Program, ProgramFailed, free_port, wait_until

# A hang, not slowness, is what this guards against: a program that dies is noticed at once.
READY_SECONDS = 300.0
BIND_ATTEMPTS = 5
BIND_FAILED = "address already in use"

# Bodies where tests look into them; secrets and tokens never (nor read requests: they are many).
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["*"]},  # health and discovery
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "evictune.io"}],
        },
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [
                {"group": "", "resources": ["configmaps", "events", "pods", "pods/eviction"]},
                {"group": "apps"},
                {"group": "events.k8s.io"},
            ],
        },
        {"level": "Metadata"},
    ],
}


class KubectlError(RuntimeError):
    """kubectl failed; the message is the command and what it wrote to stderr."""


class ControlPlane:
    """A control plane for as long as the `with` block lasts.

    `directory` takes the logs, the audit log and the kubeconfig, and keeps the first two
    afterwards; without it they are temporary. `controller_manager=False` or `scheduler=False`
    leave that part out. Programs that were never built here are built first.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        controller_manager: bool = True,
        scheduler: bool = True,
        progress: Progress = print_progress,
    ) -> None:
        self._directory = directory
        self._parts = ["kube-controller-manager"] * controller_manager
        self._parts += ["kube-scheduler"] * scheduler
        self._progress = progress
        self.programs: dict[str, Program] = {}
        self.nodes = 0
        self.token = secrets.token_hex(16)

    def __enter__(self) -> Self:
        needed = ["etcd", "kube-apiserver", *self._parts]
        for name in needed:
            ensure(name, self._progress)
        try:
            sweep()
        except TeardownError as error:  # of others, long dead; it must not keep us from starting
            self._progress(str(error))
        self.ledger = Ledger()
        try:
            self._prepare()
            self._start_etcd()
            self._start_api_server_on_free_port()
            for name in self._parts:
                self.start(name, self._arguments_of(name))
            self._wait_for_service_account()
        except BaseException:  # Ctrl-C too: what was started must not stay; raised again below
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the programs and remove everything but the logs in a directory that was given."""
        self.ledger.undo()
        for program in self.programs.values():
            program.wait()
        self.programs.clear()

    @property
    def server(self) -> str:
        """The API server's URL on loopback."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def api_server_pid(self) -> int:
        """The process id of the API server that runs now."""
        return self.programs["kube-apiserver"].pid

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 300.0) -> str:
        """Run kubectl as administrator; its output.

        Raises KubectlError with its stderr, also when it takes more than `timeout` seconds.
        """
        command = [str(ensure("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        said = f"kubectl {' '.join(arguments)}"
        try:
            result = subprocess.run(
                command, input=input, capture_output=True, text=True, check=False, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise KubectlError(f"{said}: no end within {timeout:.0f} s") from None
        if result.returncode != 0:
            raise KubectlError(f"{said}: {result.stderr.strip()}")
        return result.stdout

    def await_definition(self, name: str, timeout: float = 60.0) -> None:
        """Wait until the API server serves a CustomResourceDefinition.

        `kubectl wait` fails on one so new that its status has no list of conditions yet.
        """
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"

        def established() -> bool:
            try:
                status = json.loads(self.get(path)).get("status") or {}
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                return False
            found = {c["type"]: c["status"] for c in status.get("conditions") or ()}
            return found.get("Established") == "True"

        wait_until(established, self.programs.values(), f"{name} is not established", timeout)

    def audit_events(self) -> list[dict[str, Any]]:
        """What the audit log holds now, oldest first: `audit.k8s.io/v1` Events.

        Each has `verb`, `user.username` ("" where the caller was not known), `objectRef`
        (`resource`, `subresource`, `namespace`, `name`) and `responseStatus.code`; writes of
        evictune.io, of pods, ConfigMaps, Events and workloads also have `requestObject`.
        """
        text = self.audit_log.read_text()
        # The last line may be half written at this moment.
        events = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        for event in events:
            event["user"].setdefault("username", "")
        return events

    def stop_api_server(self) -> None:
        """Kill the API server, as a crash would; the rest goes on and finds it unreachable."""
        self.programs.pop("kube-apiserver").kill()

    def start_api_server(self) -> None:
        """Start the API server again, at the same address."""
        program = self.start("kube-apiserver", self._api_server_arguments())
        wait_until(self._ready, [program], "the API server is not ready", READY_SECONDS)

    def restart_api_server(self) -> None:
        """Stop and start the API server: clients see their connections break, then go on."""
        self.stop_api_server()
        self.start_api_server()

    def get(self, path: str, timeout: float = 5.0) -> bytes:
        """The body of a GET from the API server as administrator; urllib's errors."""
        request = urllib.request.Request(
            self.server + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        # No proxy from the environment: this address means something on this machine only.
        handler = urllib.request.HTTPSHandler(context=context)
        opener = urllib.request.build_opener(handler, urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=timeout) as response:
            body: bytes = response.read()
            return body

    def _prepare(self) -> None:
        """Directories, addresses, certificates and the token file."""
        self.work = Path(tempfile.gettempdir()) / f"evictune-{self.ledger.id}"
        self.ledger.note("tree", str(self.work))
        self.work.mkdir(mode=0o700)
        self.directory = (self._directory or self.work).resolve()
        logs = self.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.audit_log = self.directory / "audit.log"
        for old in (self.audit_log, *logs.glob("*.log")):
            old.unlink(missing_ok=True)
        self.network = network.reserve(self.ledger)
        self.authority = Authority(self.work / "pki")
        self.ca_file = self.authority.certificate_file
        self._service_accounts = self.authority.key_pair("service-accounts")
        addresses = ["127.0.0.1", "localhost", str(self.network.api_service)]
        addresses += ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        self._serving = self.authority.issue("api-server", "kube-apiserver", addresses=addresses)
        self._kubelet_client = self.authority.issue(
            "kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"]
        )
        self._write_private("tokens.csv", f'{self.token},admin,admin,"system:masters"\n')
        self._write_private("audit-policy.json", json.dumps(AUDIT_POLICY))

    def _write_private(self, name: str, text: str) -> None:
        path = self.work / name
        path.touch(mode=0o600)
        path.write_text(text)

    def start(self, name: str, arguments: Sequence[str]) -> Program:
        """Start a program of localcluster's; it ends with the control plane at the latest."""
        log = self.directory / "logs" / f"{name}.log"
        program = Program(
            name, [ensure(name, self._progress), *arguments], log, self.ledger.environment
        )
        self.programs[name] = program
        return program

    def _start_etcd(self) -> None:
        client, peer = (f"unix://{self.work}/{name}.sock" for name in ("etcd", "etcd-peer"))
        arguments = [
            f"--data-dir={self.work}/etcd",
            "--unsafe-no-fsync",  # the data does not outlive the machine's uptime
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]
        etcd = self.start("etcd", arguments)
        socket = self.work / "etcd.sock"
        wait_until(socket.exists, [etcd], "etcd does not listen", READY_SECONDS)

    def _start_api_server_on_free_port(self) -> None:
        """Another process may take the port between our look and the API server's bind."""
        for attempt in range(1, BIND_ATTEMPTS + 1):
            self.port = free_port()
            try:
                self.start_api_server()
                break
            except ProgramFailed as error:
                if attempt == BIND_ATTEMPTS or BIND_FAILED not in str(error):
                    raise
        self.kubeconfig = self.directory / "kubeconfig"
        self.ledger.note("file", str(self.kubeconfig))
        self.authority.kubeconfig(self.kubeconfig, self.server, {"token": self.token})

    def _api_server_arguments(self) -> list[str]:
        public, private = self._service_accounts
        return [
            f"--etcd-servers=unix://{self.work}/etcd.sock",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._serving[0]}",
            f"--tls-private-key-file={self._serving[1]}",
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={self.work}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={self.network.services}",
            # Endpoints may not be on loopback, and without kube-proxy nothing would read them.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={private}",
            f"--kubelet-client-certificate={self._kubelet_client[0]}",
            f"--kubelet-client-key={self._kubelet_client[1]}",
            "--kubelet-preferred-address-types=InternalIP",  # `kubectl logs` needs no DNS then
            f"--audit-policy-file={self.work}/audit-policy.json",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",  # what was answered is in the log
        ]

    def _arguments_of(self, name: str) -> list[str]:
        kubeconfig = self.authority.client_kubeconfig(name, self.server, f"system:{name}")
        common = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
        # Nobody else asks this API server: nothing need be spared (a kubelet's default is 50).
        common += ["--kube-api-qps=500", "--kube-api-burst=1000"]
        if name == "kube-scheduler":
            return common
        return [
            *common,
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._service_accounts[1]}",
            f"--root-ca-file={self.ca_file}",
        ]

    def _ready(self) -> bool:
        try:
            return self.get("/readyz") == b"ok"
        except (OSError, urllib.error.URLError):
            return False

    def _wait_for_service_account(self) -> None:
        """No pod can be made in `default` before the controller manager made its account."""
        manager = self.programs.get("kube-controller-manager")
        if manager is None:
            return
        wait_until(
            lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"),
            [manager],
            "the controller manager made no service account",
            READY_SECONDS,
        )

    def _exists(self, path: str) -> bool:
        try:
            self.get(path)
        except (OSError, urllib.error.URLError):
            return False
        return True
