//! Of commands for images.

use super::{Entry, LEAVE};

const LIST: &[&str] = &["images", "image ls"];
const REMOVE: &[&str] = &["rmi", "image rm"];
const PULL: &[&str] = &["pull", "image pull"];

pub(super) const OPTIONS: &[Entry] = &[
    (LIST, &[""], "`virtletctl image inspect NAME` tells of one image"),
    (LIST, &["--no-trunc", "-v", "--verbose", "--digests", "--pinned"], "`-o wide` shows more"),
    (LIST, &["-f", "--filter", "--format", "--tree"], "`-o json` is for programs"),
    (REMOVE, &["-a", "--all", "--prune"], "`virtletctl image prune` removes images that no pod uses"),
    (REMOVE, &["-q", "--quiet", "--no-prune"], LEAVE),
    (PULL, &["-q", "--quiet"], "`--progress none` is silent"),
    (PULL, &["-u", "--creds", "--auth"], "`--username USER --password-file FILE` is what to log in with"),
    (PULL, &["-a", "--all-tags"], "one image at a time: `virtletctl pull IMAGE`"),
    (PULL, &["--platform"], "an image is for the platform of the runtime handler; `--handler HANDLER` names one"),
    (PULL, &["--disable-content-trust", "--pod-config", "--annotation", "-t", "--pull-timeout"], LEAVE),
    (&["image prune"], &["--filter"], "`--dry-run` lists what would go"),
    (&["image inspect"], &["-f"], "`--json` is for jq"),
    (&["image save"], &["-o", "--output"], "the file stands behind the image: `virtletctl image save NAME FILE`"),
    (&["image search"], &["--limit", "-f", "--filter", "--no-trunc", "--format"], "`--json` is for programs"),
    (
        &["image import"],
        &["-m", "--message", "-c", "--change", "-i", "--input"],
        "`virtletctl image import FILE NAME` takes a disk",
    ),
];
