{{/* The controls of Pod Security's level baseline except the one of hostPath volumes, as of Kubernetes 1.36. A test compares
them with the API server's own: tests/cluster/chart/test_agent_socket_policy.py. */}}
{{- define "wattloop.baselineValidations" -}}
- expression: >-
    (!has(object.spec.hostNetwork) || !object.spec.hostNetwork)
    && (!has(object.spec.hostPID) || !object.spec.hostPID)
    && (!has(object.spec.hostIPC) || !object.spec.hostIPC)
  message: Pod Security baseline forbids hostNetwork, hostPID and hostIPC
- expression: variables.contexts.all(s, !has(s.privileged) || !s.privileged)
  message: Pod Security baseline forbids privileged containers
- expression: >-
    variables.contexts.all(s, !has(s.capabilities) || !has(s.capabilities.add) || s.capabilities.add.all(each,
    each in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE',
    'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT']))
  message: Pod Security baseline forbids added capabilities other than a container runtime's default ones
- expression: >-
    variables.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))
    && variables.ephemeral.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))
  message: Pod Security baseline forbids hostPort
- expression: >-
    variables.probes.all(p, (!has(p.httpGet) || !has(p.httpGet.host) || p.httpGet.host == '')
    && (!has(p.tcpSocket) || !has(p.tcpSocket.host) || p.tcpSocket.host == ''))
    && variables.hooks.all(h, (!has(h.httpGet) || !has(h.httpGet.host) || h.httpGet.host == '')
    && (!has(h.tcpSocket) || !has(h.tcpSocket.host) || h.tcpSocket.host == ''))
  message: Pod Security baseline forbids the field host of probes and lifecycle hooks
- expression: >-
    (!has(object.spec.securityContext) || !has(object.spec.securityContext.appArmorProfile)
    || object.spec.securityContext.appArmorProfile.type in ['RuntimeDefault', 'Localhost'])
    && variables.contexts.all(s, !has(s.appArmorProfile)
    || s.appArmorProfile.type in ['RuntimeDefault', 'Localhost'])
    && (!has(object.metadata.annotations) || object.metadata.annotations.all(key,
    !key.startsWith('container.apparmor.security.beta.kubernetes.io/')
    || object.metadata.annotations[key] in ['', 'runtime/default']
    || object.metadata.annotations[key].startsWith('localhost/')))
  message: Pod Security baseline forbids AppArmor profiles other than RuntimeDefault and Localhost
- expression: >-
    (!has(object.spec.securityContext) || !has(object.spec.securityContext.seLinuxOptions)
    || ((!has(object.spec.securityContext.seLinuxOptions.type) || object.spec.securityContext.seLinuxOptions.type in
    ['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t'])
    && (!has(object.spec.securityContext.seLinuxOptions.user) || object.spec.securityContext.seLinuxOptions.user == '')
    && (!has(object.spec.securityContext.seLinuxOptions.role) || object.spec.securityContext.seLinuxOptions.role == '')))
    && variables.contexts.all(s, !has(s.seLinuxOptions) || ((!has(s.seLinuxOptions.type) || s.seLinuxOptions.type in
    ['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t'])
    && (!has(s.seLinuxOptions.user) || s.seLinuxOptions.user == '')
    && (!has(s.seLinuxOptions.role) || s.seLinuxOptions.role == '')))
  message: Pod Security baseline forbids SELinux users and roles, and types other than those of containers
# Stricter than baseline since Kubernetes 1.35, which admits Unmasked in a user namespace.
- expression: variables.contexts.all(s, !has(s.procMount) || s.procMount == 'Default')
  message: Pod Security baseline forbids procMount other than Default
- expression: >-
    (!has(object.spec.securityContext) || !has(object.spec.securityContext.seccompProfile)
    || object.spec.securityContext.seccompProfile.type in ['RuntimeDefault', 'Localhost'])
    && variables.contexts.all(s, !has(s.seccompProfile) || s.seccompProfile.type in ['RuntimeDefault', 'Localhost'])
  message: Pod Security baseline forbids the seccomp profile Unconfined
- expression: >-
    !has(object.spec.securityContext) || !has(object.spec.securityContext.sysctls)
    || object.spec.securityContext.sysctls.all(each, each.name in ['kernel.shm_rmid_forced',
    'net.ipv4.ip_local_port_range', 'net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range',
    'net.ipv4.ip_unprivileged_port_start', 'net.ipv4.ip_local_reserved_ports', 'net.ipv4.tcp_keepalive_time',
    'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl', 'net.ipv4.tcp_keepalive_probes',
    'net.ipv4.tcp_rmem', 'net.ipv4.tcp_wmem'])
  message: Pod Security baseline forbids sysctls other than the safe ones
- expression: >-
    (!has(object.spec.securityContext) || !has(object.spec.securityContext.windowsOptions)
    || !has(object.spec.securityContext.windowsOptions.hostProcess)
    || !object.spec.securityContext.windowsOptions.hostProcess)
    && variables.contexts.all(s, !has(s.windowsOptions) || !has(s.windowsOptions.hostProcess)
    || !s.windowsOptions.hostProcess)
  message: Pod Security baseline forbids hostProcess containers
{{- end -}}
