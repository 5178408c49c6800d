//! Fields of volumes, networks, credentials and probes.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, TCPSocketAction};

use super::forms::{BASE64, Form, IMAGE, LABEL, LINES, NAME, QUALIFIED, SUBDOMAIN, TEXT, form};
use super::{Json, Object, Shape, is, later, must, never, whole, yes};

pub(crate) static VOLUME: Object = Object(&[
    must("name", Shape::Text(&LABEL)),
    yes("containerDisk", Shape::Object(&CONTAINER_DISK)),
    yes("persistentVolumeClaim", Shape::Object(&CLAIM)),
    yes("ephemeral", Shape::Object(&EPHEMERAL)),
    yes("emptyDisk", Shape::Object(&EMPTY_DISK)),
    yes("cloudInitNoCloud", Shape::Object(&CLOUD_INIT)),
    yes("cloudInitConfigDrive", Shape::Object(&CLOUD_INIT)),
    yes("configMap", Shape::Object(&CONFIG_MAP)),
    yes("secret", Shape::Object(&SECRET)),
    yes("sysprep", Shape::Object(&SYSPREP)),
    later("serviceAccount", Json::Object, ""),
    later("downwardAPI", Json::Object, ""),
    never("hostDisk", Json::Object, "VMs have no files of the node; use a claim"),
    never(
        "dataVolume",
        Json::Object,
        "make the claim with CDI and name it under persistentVolumeClaim; `virtletctl vm convert` does",
    ),
    never("downwardMetrics", Json::Object, ""),
    never("memoryDump", Json::Object, ""),
    never("containerPath", Json::Object, ""),
]);

static CONTAINER_DISK: Object = Object(&[
    must("image", Shape::Text(&IMAGE)),
    yes("imagePullPolicy", Shape::Word(&["Always", "IfNotPresent", "Never"])),
    yes("imagePullSecret", Shape::Text(&SUBDOMAIN)),
    yes("path", Shape::Text(&TEXT)),
]);

static CLAIM: Object = Object(&[
    must("claimName", Shape::Text(&SUBDOMAIN)),
    yes("readOnly", Shape::Bool),
    never("hotpluggable", Json::Bool, "nothing is plugged into a VM that runs"),
]);

static EPHEMERAL: Object = Object(&[must("persistentVolumeClaim", Shape::Object(&LOWER_CLAIM))]);

static LOWER_CLAIM: Object = Object(&[must("claimName", Shape::Text(&SUBDOMAIN)), yes("readOnly", Shape::Bool)]);

static EMPTY_DISK: Object = Object(&[must("capacity", Shape::Quantity)]);

static CLOUD_INIT: Object = Object(&[
    yes("userData", Shape::Text(&LINES)),
    yes("userDataBase64", Shape::Text(&BASE64)),
    yes("secretRef", Shape::Object(&REFERENCE)),
    yes("networkData", Shape::Text(&LINES)),
    yes("networkDataBase64", Shape::Text(&BASE64)),
    yes("networkDataSecretRef", Shape::Object(&REFERENCE)),
]);

static REFERENCE: Object = Object(&[must("name", Shape::Text(&SUBDOMAIN))]);

static CONFIG_MAP: Object = Object(&[
    must("name", Shape::Text(&SUBDOMAIN)),
    yes("optional", Shape::Bool),
    yes("volumeLabel", Shape::Text(&VOLUME_LABEL)),
]);

static SECRET: Object = Object(&[
    must("secretName", Shape::Text(&SUBDOMAIN)),
    yes("optional", Shape::Bool),
    yes("volumeLabel", Shape::Text(&VOLUME_LABEL)),
]);

static VOLUME_LABEL: Form = form("a volume label of at most 32 printable characters", 32, "[ -~]*", |text| {
    text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
});

static SYSPREP: Object =
    Object(&[yes("secret", Shape::Object(&REFERENCE)), yes("configMap", Shape::Object(&REFERENCE))]);

pub(crate) static NETWORK: Object = Object(&[
    must("name", Shape::Text(&NAME)),
    yes("pod", Shape::Object(&POD_NETWORK)),
    yes("multus", Shape::Object(&MULTUS)),
    later("resourceClaim", Json::Object, ""),
]);

static POD_NETWORK: Object =
    Object(&[never("vmNetworkCIDR", Json::Text, NO_NAT), never("vmIPv6NetworkCIDR", Json::Text, NO_NAT)]);

const NO_NAT: &str = "the guest has the pod's own address";

static MULTUS: Object = Object(&[must("networkName", Shape::Text(&QUALIFIED)), yes("default", Shape::Bool)]);

pub(crate) static ACCESS_CREDENTIAL: Object = Object(&[
    yes("sshPublicKey", Shape::Object(&SSH_PUBLIC_KEY)),
    later("userPassword", Json::Object, "cloud-init sets passwords"),
]);

static SSH_PUBLIC_KEY: Object =
    Object(&[must("source", Shape::Object(&KEY_SOURCE)), must("propagationMethod", Shape::Object(&PROPAGATION))]);

static KEY_SOURCE: Object = Object(&[must("secret", Shape::Object(&KEY_SECRET))]);

static KEY_SECRET: Object = Object(&[must("secretName", Shape::Text(&SUBDOMAIN))]);

static PROPAGATION: Object = Object(&[
    yes("noCloud", Shape::Object(&Object(&[]))),
    yes("configDrive", Shape::Object(&Object(&[]))),
    later("qemuGuestAgent", Json::Object, "use noCloud or configDrive"),
]);

pub(crate) static PROBE: Object = Object(&[
    yes("httpGet", Shape::Foreign(is::<HTTPGetAction>, Json::Object)),
    yes("tcpSocket", Shape::Foreign(is::<TCPSocketAction>, Json::Object)),
    yes("exec", Shape::Foreign(is::<ExecAction>, Json::Object)),
    yes("guestAgentPing", Shape::Object(&Object(&[]))),
    yes("initialDelaySeconds", whole(i32::MAX as i64)),
    yes("timeoutSeconds", whole(i32::MAX as i64)),
    yes("periodSeconds", whole(i32::MAX as i64)),
    yes("successThreshold", whole(i32::MAX as i64)),
    yes("failureThreshold", whole(i32::MAX as i64)),
]);
