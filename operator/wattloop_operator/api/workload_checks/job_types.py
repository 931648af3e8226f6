"""The types of a Job and its pods, as Kubernetes 1.36 publishes them; `support.control_plane.type_table` prints it.

A type is followed by its fields. `[T]` is a list, `{T}` an object with values of T, `A|B` a choice; `!` is required.
"""

VERSION = "1.36"
TABLE = """
AWSElasticBlockStoreVolumeSource
  fsType:string partition:int32 readOnly:boolean volumeID:string!
Affinity
  nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AppArmorProfile
  localhostProfile:string type:Localhost|RuntimeDefault|Unconfined!
AzureDiskVolumeSource
  cachingMode:None|ReadOnly|ReadWrite diskName:string! diskURI:string! fsType:string kind:Dedicated|Managed|Shared
  readOnly:boolean
AzureFileVolumeSource
  readOnly:boolean secretName:string! shareName:string!
CSIVolumeSource
  driver:string! fsType:string nodePublishSecretRef:LocalObjectReference readOnly:boolean volumeAttributes:{string}
Capabilities
  add:[string] drop:[string]
CephFSVolumeSource
  monitors:[string]! path:string readOnly:boolean secretFile:string secretRef:LocalObjectReference user:string
CinderVolumeSource
  fsType:string readOnly:boolean secretRef:LocalObjectReference volumeID:string!
ClusterTrustBundleProjection
  labelSelector:LabelSelector name:string optional:boolean path:string! signerName:string
ConfigMapEnvSource
  name:string optional:boolean
ConfigMapKeySelector
  key:string! name:string optional:boolean
ConfigMapProjection
  items:[KeyToPath] name:string optional:boolean
ConfigMapVolumeSource
  defaultMode:int32 items:[KeyToPath] name:string optional:boolean
Container
  args:[string] command:[string] env:[EnvVar] envFrom:[EnvFromSource] image:string
  imagePullPolicy:Always|IfNotPresent|Never lifecycle:Lifecycle livenessProbe:Probe name:string! ports:[ContainerPort]
  readinessProbe:Probe resizePolicy:[ContainerResizePolicy] resources:ResourceRequirements restartPolicy:string
  restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext startupProbe:Probe stdin:boolean
  stdinOnce:boolean terminationMessagePath:string terminationMessagePolicy:FallbackToLogsOnError|File tty:boolean
  volumeDevices:[VolumeDevice] volumeMounts:[VolumeMount] workingDir:string
ContainerPort
  containerPort:int32! hostIP:string hostPort:int32 name:string protocol:SCTP|TCP|UDP
ContainerResizePolicy
  resourceName:string! restartPolicy:string!
ContainerRestartRule
  action:string! exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes
  operator:string! values:[int32]
DownwardAPIProjection
  items:[DownwardAPIVolumeFile]
DownwardAPIVolumeFile
  fieldRef:ObjectFieldSelector mode:int32 path:string! resourceFieldRef:ResourceFieldSelector
DownwardAPIVolumeSource
  defaultMode:int32 items:[DownwardAPIVolumeFile]
EmptyDirVolumeSource
  medium:string sizeLimit:Quantity
EnvFromSource
  configMapRef:ConfigMapEnvSource prefix:string secretRef:SecretEnvSource
EnvVar
  name:string! value:string valueFrom:EnvVarSource
EnvVarSource
  configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector
  resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
EphemeralContainer
  args:[string] command:[string] env:[EnvVar] envFrom:[EnvFromSource] image:string
  imagePullPolicy:Always|IfNotPresent|Never lifecycle:Lifecycle livenessProbe:Probe name:string! ports:[ContainerPort]
  readinessProbe:Probe resizePolicy:[ContainerResizePolicy] resources:ResourceRequirements restartPolicy:string
  restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext startupProbe:Probe stdin:boolean
  stdinOnce:boolean targetContainerName:string terminationMessagePath:string
  terminationMessagePolicy:FallbackToLogsOnError|File tty:boolean volumeDevices:[VolumeDevice]
  volumeMounts:[VolumeMount] workingDir:string
EphemeralVolumeSource
  volumeClaimTemplate:PersistentVolumeClaimTemplate
ExecAction
  command:[string]
FCVolumeSource
  fsType:string lun:int32 readOnly:boolean targetWWNs:[string] wwids:[string]
FieldsV1
FileKeySelector
  key:string! optional:boolean path:string! volumeName:string!
FlexVolumeSource
  driver:string! fsType:string options:{string} readOnly:boolean secretRef:LocalObjectReference
FlockerVolumeSource
  datasetName:string datasetUUID:string
GCEPersistentDiskVolumeSource
  fsType:string partition:int32 pdName:string! readOnly:boolean
GRPCAction
  port:int32! service:string
GitRepoVolumeSource
  directory:string repository:string! revision:string
GlusterfsVolumeSource
  endpoints:string! path:string! readOnly:boolean
HTTPGetAction
  host:string httpHeaders:[HTTPHeader] path:string port:IntOrString! scheme:HTTP|HTTPS
HTTPHeader
  name:string! value:string!
HostAlias
  hostnames:[string] ip:string!
HostPathVolumeSource
  path:string! type:BlockDevice|CharDevice|Directory|DirectoryOrCreate|File|FileOrCreate|Socket
ISCSIVolumeSource
  chapAuthDiscovery:boolean chapAuthSession:boolean fsType:string initiatorName:string iqn:string!
  iscsiInterface:string lun:int32! portals:[string] readOnly:boolean secretRef:LocalObjectReference
  targetPortal:string!
ImageVolumeSource
  pullPolicy:Always|IfNotPresent|Never reference:string
JobSpec
  activeDeadlineSeconds:int64 backoffLimit:int32 backoffLimitPerIndex:int32 completionMode:Indexed|NonIndexed
  completions:int32 managedBy:string manualSelector:boolean maxFailedIndexes:int32 parallelism:int32
  podFailurePolicy:PodFailurePolicy podReplacementPolicy:Failed|TerminatingOrFailed selector:LabelSelector
  successPolicy:SuccessPolicy suspend:boolean template:PodTemplateSpec! ttlSecondsAfterFinished:int32
KeyToPath
  key:string! mode:int32 path:string!
LabelSelector
  matchExpressions:[LabelSelectorRequirement] matchLabels:{string}
LabelSelectorRequirement
  key:string! operator:string! values:[string]
Lifecycle
  postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:string
LifecycleHandler
  exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
LocalObjectReference
  name:string
ManagedFieldsEntry
  apiVersion:string fieldsType:string fieldsV1:FieldsV1 manager:string operation:string subresource:string time:Time
NFSVolumeSource
  path:string! readOnly:boolean server:string!
NodeAffinity
  preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeSelector
  nodeSelectorTerms:[NodeSelectorTerm]!
NodeSelectorRequirement
  key:string! operator:DoesNotExist|Exists|Gt|In|Lt|NotIn! values:[string]
NodeSelectorTerm
  matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
ObjectFieldSelector
  apiVersion:string fieldPath:string!
ObjectMeta
  annotations:{string} creationTimestamp:Time deletionGracePeriodSeconds:int64 deletionTimestamp:Time
  finalizers:[string] generateName:string generation:int64 labels:{string} managedFields:[ManagedFieldsEntry]
  name:string namespace:string ownerReferences:[OwnerReference] resourceVersion:string selfLink:string uid:string
OwnerReference
  apiVersion:string! blockOwnerDeletion:boolean controller:boolean kind:string! name:string! uid:string!
PersistentVolumeClaimSpec
  accessModes:[ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod] dataSource:TypedLocalObjectReference
  dataSourceRef:TypedObjectReference resources:VolumeResourceRequirements selector:LabelSelector
  storageClassName:string volumeAttributesClassName:string volumeMode:Block|Filesystem volumeName:string
PersistentVolumeClaimTemplate
  metadata:ObjectMeta spec:PersistentVolumeClaimSpec!
PersistentVolumeClaimVolumeSource
  claimName:string! readOnly:boolean
PhotonPersistentDiskVolumeSource
  fsType:string pdID:string!
PodAffinity
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
  requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodAffinityTerm
  labelSelector:LabelSelector matchLabelKeys:[string] mismatchLabelKeys:[string] namespaceSelector:LabelSelector
  namespaces:[string] topologyKey:string!
PodAntiAffinity
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
  requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodCertificateProjection
  certificateChainPath:string credentialBundlePath:string keyPath:string keyType:string! maxExpirationSeconds:int32
  signerName:string! userAnnotations:{string}
PodDNSConfig
  nameservers:[string] options:[PodDNSConfigOption] searches:[string]
PodDNSConfigOption
  name:string value:string
PodFailurePolicy
  rules:[PodFailurePolicyRule]!
PodFailurePolicyOnExitCodesRequirement
  containerName:string operator:In|NotIn! values:[int32]!
PodFailurePolicyOnPodConditionsPattern
  status:string type:string!
PodFailurePolicyRule
  action:Count|FailIndex|FailJob|Ignore! onExitCodes:PodFailurePolicyOnExitCodesRequirement
  onPodConditions:[PodFailurePolicyOnPodConditionsPattern]
PodOS
  name:string!
PodReadinessGate
  conditionType:string!
PodResourceClaim
  name:string! resourceClaimName:string resourceClaimTemplateName:string
PodSchedulingGate
  name:string!
PodSchedulingGroup
  podGroupName:string
PodSecurityContext
  appArmorProfile:AppArmorProfile fsGroup:int64 fsGroupChangePolicy:Always|OnRootMismatch runAsGroup:int64
  runAsNonRoot:boolean runAsUser:int64 seLinuxChangePolicy:string seLinuxOptions:SELinuxOptions
  seccompProfile:SeccompProfile supplementalGroups:[int64] supplementalGroupsPolicy:Merge|Strict sysctls:[Sysctl]
  windowsOptions:WindowsSecurityContextOptions
PodSpec
  activeDeadlineSeconds:int64 affinity:Affinity automountServiceAccountToken:boolean containers:[Container]!
  dnsConfig:PodDNSConfig dnsPolicy:ClusterFirst|ClusterFirstWithHostNet|Default|None enableServiceLinks:boolean
  ephemeralContainers:[EphemeralContainer] hostAliases:[HostAlias] hostIPC:boolean hostNetwork:boolean hostPID:boolean
  hostUsers:boolean hostname:string hostnameOverride:string imagePullSecrets:[LocalObjectReference]
  initContainers:[Container] nodeName:string nodeSelector:{string} os:PodOS overhead:{Quantity}
  preemptionPolicy:Never|PreemptLowerPriority priority:int32 priorityClassName:string
  readinessGates:[PodReadinessGate] resourceClaims:[PodResourceClaim] resources:ResourceRequirements
  restartPolicy:Always|Never|OnFailure runtimeClassName:string schedulerName:string
  schedulingGates:[PodSchedulingGate] schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext
  serviceAccount:string serviceAccountName:string setHostnameAsFQDN:boolean shareProcessNamespace:boolean
  subdomain:string terminationGracePeriodSeconds:int64 tolerations:[Toleration]
  topologySpreadConstraints:[TopologySpreadConstraint] volumes:[Volume]
PodTemplateSpec
  metadata:ObjectMeta spec:PodSpec
PortworxVolumeSource
  fsType:string readOnly:boolean volumeID:string!
PreferredSchedulingTerm
  preference:NodeSelectorTerm! weight:int32!
Probe
  exec:ExecAction failureThreshold:int32 grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds:int32
  periodSeconds:int32 successThreshold:int32 tcpSocket:TCPSocketAction terminationGracePeriodSeconds:int64
  timeoutSeconds:int32
ProjectedVolumeSource
  defaultMode:int32 sources:[VolumeProjection]
QuobyteVolumeSource
  group:string readOnly:boolean registry:string! tenant:string user:string volume:string!
RBDVolumeSource
  fsType:string image:string! keyring:string monitors:[string]! pool:string readOnly:boolean
  secretRef:LocalObjectReference user:string
ResourceClaim
  name:string! request:string
ResourceFieldSelector
  containerName:string divisor:Quantity resource:string!
ResourceRequirements
  claims:[ResourceClaim] limits:{Quantity} requests:{Quantity}
SELinuxOptions
  level:string role:string type:string user:string
ScaleIOVolumeSource
  fsType:string gateway:string! protectionDomain:string readOnly:boolean secretRef:LocalObjectReference!
  sslEnabled:boolean storageMode:string storagePool:string system:string! volumeName:string
SeccompProfile
  localhostProfile:string type:Localhost|RuntimeDefault|Unconfined!
SecretEnvSource
  name:string optional:boolean
SecretKeySelector
  key:string! name:string optional:boolean
SecretProjection
  items:[KeyToPath] name:string optional:boolean
SecretVolumeSource
  defaultMode:int32 items:[KeyToPath] optional:boolean secretName:string
SecurityContext
  allowPrivilegeEscalation:boolean appArmorProfile:AppArmorProfile capabilities:Capabilities privileged:boolean
  procMount:Default|Unmasked readOnlyRootFilesystem:boolean runAsGroup:int64 runAsNonRoot:boolean runAsUser:int64
  seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions
ServiceAccountTokenProjection
  audience:string expirationSeconds:int64 path:string!
SleepAction
  seconds:int64!
StorageOSVolumeSource
  fsType:string readOnly:boolean secretRef:LocalObjectReference volumeName:string volumeNamespace:string
SuccessPolicy
  rules:[SuccessPolicyRule]!
SuccessPolicyRule
  succeededCount:int32 succeededIndexes:string
Sysctl
  name:string! value:string!
TCPSocketAction
  host:string port:IntOrString!
Toleration
  effect:NoExecute|NoSchedule|PreferNoSchedule key:string operator:Equal|Exists|Gt|Lt tolerationSeconds:int64
  value:string
TopologySpreadConstraint
  labelSelector:LabelSelector matchLabelKeys:[string] maxSkew:int32! minDomains:int32 nodeAffinityPolicy:Honor|Ignore
  nodeTaintsPolicy:Honor|Ignore topologyKey:string! whenUnsatisfiable:DoNotSchedule|ScheduleAnyway!
TypedLocalObjectReference
  apiGroup:string kind:string! name:string!
TypedObjectReference
  apiGroup:string kind:string! name:string! namespace:string
Volume
  awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
  azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource configMap:ConfigMapVolumeSource
  csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource emptyDir:EmptyDirVolumeSource
  ephemeral:EphemeralVolumeSource fc:FCVolumeSource flexVolume:FlexVolumeSource flocker:FlockerVolumeSource
  gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource glusterfs:GlusterfsVolumeSource
  hostPath:HostPathVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource name:string! nfs:NFSVolumeSource
  persistentVolumeClaim:PersistentVolumeClaimVolumeSource photonPersistentDisk:PhotonPersistentDiskVolumeSource
  portworxVolume:PortworxVolumeSource projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource
  scaleIO:ScaleIOVolumeSource secret:SecretVolumeSource storageos:StorageOSVolumeSource
  vsphereVolume:VsphereVirtualDiskVolumeSource
VolumeDevice
  devicePath:string! name:string!
VolumeMount
  mountPath:string! mountPropagation:Bidirectional|HostToContainer|None name:string! readOnly:boolean
  recursiveReadOnly:string subPath:string subPathExpr:string
VolumeProjection
  clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection downwardAPI:DownwardAPIProjection
  podCertificate:PodCertificateProjection secret:SecretProjection serviceAccountToken:ServiceAccountTokenProjection
VolumeResourceRequirements
  limits:{Quantity} requests:{Quantity}
VsphereVirtualDiskVolumeSource
  fsType:string storagePolicyID:string storagePolicyName:string volumePath:string!
WeightedPodAffinityTerm
  podAffinityTerm:PodAffinityTerm! weight:int32!
WindowsSecurityContextOptions
  gmsaCredentialSpec:string gmsaCredentialSpecName:string hostProcess:boolean runAsUserName:string
"""
