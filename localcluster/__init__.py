"""A real Kubernetes cluster on this machine, as a library: for the demo and the tests.

- `localcluster.binaries`: the Kubernetes programs, each built once from source.
- `localcluster.controlplane`: `ControlPlane`: etcd, API server, controller manager, scheduler.
- `localcluster.node`: `Node`: containerd and the real kubelet in namespaces of their own (root).
- `localcluster.processnode`: `ProcessNode`: pods as local processes (no root).

Every one is a context manager that leaves nothing behind, also when its owner is killed: see
`localcluster.ledger`. Linux only. From a shell: `python -m localcluster --help`.
"""
