//! cloud-init's data, and keys that it brings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vmspec::annotations::PodAnnotations;
use vmspec::annotations::keys::USER_DATA;

use crate::Path;
use crate::finding::Findings;
use crate::types::{CloudInit, Reference, Spec};

/// Most bytes of data in the object itself.
const MAX_INLINE: usize = 2048;

pub(super) fn check(spec: &Spec, at: &Path, found: &mut Findings) {
    let at_volumes = at.field("volumes");
    let mut first = None;
    for (nth, volume) in spec.volumes.iter().enumerate() {
        let Some((source, data)) = volume.cloud_init() else { continue };
        let at = at_volumes.item(nth).field(source);
        if let Some(first) = &first {
            found.error(&at, format!("a VM has one volume of cloud-init, and that is {first}"));
        } else {
            first = Some(at.clone());
        }
        volume_data(data, &at, found);
    }
    let has =
        |name: &str| spec.volumes.iter().any(|volume| volume.cloud_init().is_some_and(|(source, _)| source == name));
    for (nth, credential) in spec.access_credentials.iter().enumerate() {
        let at = at.field("accessCredentials").item(nth);
        let Some(key) = &credential.ssh_public_key else {
            found.error(&at, "needs sshPublicKey");
            continue;
        };
        let at = at.field("sshPublicKey");
        let at = at.field("propagationMethod");
        match (key.propagation_method.no_cloud, key.propagation_method.config_drive) {
            (Some(_), None) => {
                found.unless(has("cloudInitNoCloud"), &at.field("noCloud"), "needs a volume cloudInitNoCloud")
            }
            (None, Some(_)) => {
                found.unless(
                    has("cloudInitConfigDrive"),
                    &at.field("configDrive"),
                    "needs a volume cloudInitConfigDrive",
                );
            }
            _ => found.error(&at, "needs one of noCloud and configDrive"),
        }
    }
}

fn volume_data(data: &CloudInit, at: &Path, found: &mut Findings) {
    let user = (&data.user_data, &data.user_data_base64, &data.secret_ref);
    let network = (&data.network_data, &data.network_data_base64, &data.network_data_secret_ref);
    let some = one_of(user, ["userData", "userDataBase64", "secretRef"], at, found);
    let other = one_of(network, ["networkData", "networkDataBase64", "networkDataSecretRef"], at, found);
    found.unless(some || other, at, "needs userData, userDataBase64 or secretRef");
    if let Ok(text) = String::from_utf8(user_data(data).unwrap_or_default())
        && !text.is_empty()
        && let Err(problems) = PodAnnotations::parse(&[(USER_DATA.to_owned(), text)].into())
    {
        let field = if data.user_data.is_some() { "userData" } else { "userDataBase64" };
        let prefix = format!("annotation {USER_DATA}: ");
        for problem in problems.each() {
            found.error(&at.field(field), problem.strip_prefix(&prefix).unwrap_or(&problem));
        }
    }
}

/// User-data that is in the object, as bytes.
pub(crate) fn user_data(data: &CloudInit) -> Option<Vec<u8>> {
    let plain = data.user_data.as_ref().map(|text| text.clone().into_bytes());
    plain.or_else(|| STANDARD.decode(data.user_data_base64.as_ref()?).ok())
}

type Ways<'a> = (&'a Option<String>, &'a Option<String>, &'a Option<Reference>);

fn one_of((plain, base64, secret): Ways<'_>, names: [&str; 3], at: &Path, found: &mut Findings) -> bool {
    let [plain_name, base64_name, secret_name] = names;
    let ways = [plain.is_some(), base64.is_some(), secret.is_some()].into_iter().filter(|is_there| *is_there).count();
    found.unless(ways <= 1, at, format!("has several of {plain_name}, {base64_name} and {secret_name}"));
    let decoded = base64.as_ref().map(|text| text.len() / 4 * 3);
    for (length, name) in [(plain.as_ref().map(String::len), plain_name), (decoded, base64_name)] {
        let is_short = length.is_none_or(|length| length <= MAX_INLINE);
        found.unless(
            is_short,
            &at.field(name),
            format!("is longer than {MAX_INLINE} bytes; put it into a Secret, by {secret_name}"),
        );
    }
    ways > 0
}
