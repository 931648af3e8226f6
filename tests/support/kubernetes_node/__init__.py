"""A real Kubernetes node on this machine: containerd, kubelet, kube-proxy, a bridge, a name server, a control plane."""
