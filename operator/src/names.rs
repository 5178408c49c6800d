//! Names that objects and pods of ours have.

pub use kubevirt::{PRESETS, VMI};

/// Of the operator, in `app.kubernetes.io/name`, as field manager and as reporter of events.
pub const OPERATOR: &str = "virtlet-operator";
/// By which nodes tell of their VMs, if it is not by their own credentials: of a ServiceAccount and its rights.
pub const REPORTER: &str = "virtlet-reporter";
/// Where that account is: beside what is on nodes, of which a namespace with Pod Security may have nothing.
pub const REPORTER_NAMESPACE: &str = "kube-system";
/// Label, with value [`OPERATOR`], of all that `install` makes. CRDs without it are somebody else's.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of a pod with its VirtualMachineInstance's uid.
pub const VMI_UID: &str = "virtlet.k8s/vmi-uid";
/// Finalizer of a VirtualMachineInstance as long as its pod may run.
pub const POD_FINALIZER: &str = "virtlet.k8s/pod";
/// Finalizer of a VirtualMachine as long as its instance is there.
pub const VMI_FINALIZER: &str = "virtlet.k8s/vmi";
/// Annotation by which somebody asks a VirtualMachine to start, stop or restart.
pub const POWER_REQUEST: &str = "virtlet.k8s/power-request";
/// Namespace of the operator unless another one is named.
pub const NAMESPACE: &str = "virtlet-system";
/// Configuration of the webhook that adds presets, and the webhook in it.
pub const WEBHOOK_CONFIGURATION: &str = "virtlet-presets";
pub const WEBHOOK: &str = "presets.virtlet.k8s";
/// Where the operator answers it.
pub const WEBHOOK_PATH: &str = "/presets";
/// Secret, in the operator's namespace, with the certificates that it answers with.
pub const TLS_SECRET: &str = "virtlet-operator-tls";
/// Of the server of subresources: its Deployment, Service, account and rights.
pub const SUBRESOURCES: &str = "virtlet-subresources";
/// Secret, in the operator's namespace, with the certificates that it answers with.
pub const SUBRESOURCES_TLS_SECRET: &str = "virtlet-subresources-tls";
/// What names of Secrets end with that the operator makes beside pods.
pub const USER_DATA_SUFFIX: &str = "-ci";
/// Why an instance has no pod that names a claim which is not there.
pub const NO_CLAIM: &str = "PvcNotFound";
