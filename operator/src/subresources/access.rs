//! Whether who asks may: the API server is asked for exactly this subresource of this object, each time.

use std::time::Duration;

use hyper::StatusCode;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;

use super::front_proxy::User;
use super::refusal::Refusal;
use crate::group::VERSION;

/// The API server answers within this.
const ASK: Duration = Duration::from_secs(10);

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) group: &'a str,
    pub(super) right: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// Sees that somebody may.
pub(super) async fn check(client: &Client, user: &User, wanted: Wanted<'_>) -> Result<(), Refusal> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let (review, params) = (review(user, wanted), PostParams::default());
    let asked = timeout(ASK, api.create(&params, &review)).await;
    let asked = asked.map_err(|_| Refusal::late("the API server, asked for rights,", ASK.as_secs()))?;
    let review = asked.map_err(|error| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, Refusal::of_call("ask for rights", &error).message)
    })?;
    match review.status {
        Some(status) if status.allowed && status.denied != Some(true) => Ok(()),
        status => Err(forbidden(user, wanted, status.and_then(|status| status.reason).as_deref())),
    }
}

fn review(user: &User, wanted: Wanted<'_>) -> SubjectAccessReview {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let attributes = ResourceAttributes {
        group: some(wanted.group),
        version: some(VERSION),
        verb: some(wanted.right),
        resource: some(wanted.resource),
        subresource: some(wanted.subresource),
        namespace: some(wanted.namespace),
        name: some(wanted.name),
        ..ResourceAttributes::default()
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: some(&user.name),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// As the API server itself says it.
fn forbidden(user: &User, wanted: Wanted<'_>, reason: Option<&str>) -> Refusal {
    let Wanted { group, right, resource, subresource, namespace, name } = wanted;
    let whole = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
    let why = reason.filter(|reason| !reason.is_empty()).map(|reason| format!(": {reason}")).unwrap_or_default();
    let text = format!(
        "{resource}.{group} \"{name}\" is forbidden: User {:?} cannot {right} resource \"{whole}\" in API group \"{group}\" in the namespace \"{namespace}\"{why}",
        user.name,
    );
    Refusal::new(StatusCode::FORBIDDEN, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exactly_this_is_asked() {
        let user = User {
            name: "jane".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["dev".to_owned()],
            extra: [("scopes".to_owned(), vec!["one".to_owned()])].into(),
        };
        let wanted = Wanted {
            group: "subresources.kubevirt.io",
            right: "get",
            resource: "virtualmachineinstances",
            subresource: "vnc/screenshot",
            namespace: "default",
            name: "db",
        };
        let asked = serde_json::to_value(review(&user, wanted)).expect("JSON");
        let attributes = json!({
            "group": "subresources.kubevirt.io", "version": "v1", "verb": "get", "resource": "virtualmachineinstances",
            "subresource": "vnc/screenshot", "namespace": "default", "name": "db",
        });
        let spec = json!({
            "user": "jane", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["one"]}, "resourceAttributes": attributes,
        });
        assert_eq!(asked["spec"], spec);
        let told = forbidden(&user, wanted, Some("")).message;
        assert_eq!(
            told,
            "virtualmachineinstances.subresources.kubevirt.io \"db\" is forbidden: User \"jane\" cannot get resource \
             \"virtualmachineinstances/vnc/screenshot\" in API group \"subresources.kubevirt.io\" in the namespace \"default\""
        );
    }
}
