//! Names of links: `links/<escaped reference> -> ../data/<hex>`, and the same below `handlers/<handler>/` with a longer
//! way up.
//!
//! `/` becomes `%`, which no reference has, so the map is one to one. A name that would be too long for a file is cut
//! and ends in `~` (which no reference has either) and a hash of the whole; the record beside it has the full text.

use sha2::{Digest as _, Sha256};
use vmimage::digest::{Algorithm, Digest, ImageId};
use vmimage::name::ImageRef;

/// Longest name that is kept as it is; `.json` must still fit behind it.
const MAX_PLAIN: usize = 240;
const KEPT: usize = 160;

/// The link of a reference.
pub(crate) fn link_name(image: &ImageRef) -> String {
    let text = image.to_string();
    let escaped = text.replace('/', "%");
    if escaped.len() <= MAX_PLAIN {
        return escaped;
    }
    let sum = Digest::computed(Algorithm::Sha256, &Sha256::digest(text.as_bytes())).to_string();
    let hex = sum.trim_start_matches("sha256:");
    // References are ASCII, so any place is a boundary of characters.
    format!("{}~{hex}", &escaped[..KEPT])
}

/// The record of a reference.
pub(crate) fn record_name(image: &ImageRef) -> String {
    format!("{}.json", link_name(image))
}

/// The reference of a link, given the text of its record, if it has one. `None` if no reference has this link.
pub(crate) fn image_of(link: &str, recorded: Option<&str>) -> Option<ImageRef> {
    let image: ImageRef = match link.contains('~') {
        true => recorded?.parse().ok()?,
        false => link.replace('%', "/").parse().ok()?,
    };
    (link_name(&image) == link).then_some(image)
}

/// What a link to an image holds, `to_data` being the way to its directory.
pub(crate) fn target(to_data: &str, id: &ImageId) -> String {
    format!("{to_data}{}", id.hex())
}

/// The image that a link's target means, if it is exactly of the form that we write.
pub(crate) fn id_of_target(to_data: &str, target: &str) -> Option<ImageId> {
    ImageId::from_hex(target.strip_prefix(to_data)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn links_are_named_as_the_layout_says() {
        let cases = [
            ("example.com/whatever/etc", "example.com%whatever%etc:latest"),
            ("example.com:8080/x:v1", "example.com:8080%x:v1"),
            ("anotherimg", "anotherimg:latest"),
        ];
        for (image, link) in cases {
            assert_eq!(link_name(&image.parse().expect("a reference")), link);
        }
    }

    #[test]
    fn only_targets_of_ours_count() {
        let hex = "ab".repeat(32);
        let id = ImageId::from_hex(&hex).expect("an id");
        assert_eq!(id_of_target("../data/", &target("../data/", &id)), Some(id));
        for target in [
            format!("../data/{hex}/"),
            format!("../../data/{hex}"),
            format!("/data/{hex}"),
            "../data/x".into(),
            "/etc/passwd".into(),
        ] {
            assert_eq!(id_of_target("../data/", &target), None, "{target}");
        }
    }

    proptest! {
        #[test]
        fn a_link_leads_back_to_its_reference(path in "[a-z]{1,6}(/[a-z]{1,40}){0,5}", tag in "[A-Za-z0-9_]{1,128}") {
            let image: ImageRef = format!("{path}:{tag}").parse().expect("a reference");
            let link = link_name(&image);
            prop_assert!(link.len() <= MAX_PLAIN && !link.contains('/'));
            prop_assert_eq!(image_of(&link, Some(&image.to_string())), Some(image));
        }
    }
}
