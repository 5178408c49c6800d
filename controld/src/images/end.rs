//! One line in the log for each pull's end, whatever the end is: what was pulled, why nothing was, or that nobody waited any
//! more. Several who wait for one download have a line each.

use common::Chain;
use imagestore::Image;
use vmspec::error::Result;

/// A pull whose end was not told yet.
pub(super) struct End<'a> {
    image: &'a str,
    handler: &'a str,
    told: bool,
}

impl<'a> End<'a> {
    pub(super) fn of(image: &'a str, handler: &'a str) -> Self {
        Self { image, handler, told: false }
    }

    /// Tells the outcome, and gives it back.
    pub(super) fn told(mut self, outcome: Result<Image>) -> Result<Image> {
        self.told = true;
        // As callers send them, so with what is not printable escaped.
        let Self { image, handler, .. } = self;
        match &outcome {
            Ok(pulled) if pulled.stale => {
                tracing::warn!(?image, handler = pulled.handler, id = %pulled.id, "image of the last pull given, its source was not asked");
            }
            Ok(pulled) => tracing::info!(?image, handler = pulled.handler, id = %pulled.id, "image pulled"),
            Err(error) => tracing::warn!(?image, ?handler, error = %Chain(error), "image not pulled"),
        }
        outcome
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.told {
            let Self { image, handler, .. } = self;
            tracing::info!(?image, ?handler, "image not pulled, as nobody waits for it any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use vmspec::error::{Error, Kind};

    use super::*;
    use crate::logged::logged;

    #[test]
    fn every_end_has_one_line_with_its_reason() {
        let failed = logged(|| {
            let refused = Error::new(Kind::Denied, "server said no");
            End::of("x/y\n:1", "arm").told(Err(refused)).expect_err("as it came");
        });
        assert_eq!(failed.lines().count(), 1, "{failed}");
        assert!(failed.contains("WARN") && failed.contains(r#"image="x/y\n:1""#), "{failed}");
        assert!(failed.contains("server said no") && failed.contains(r#"handler="arm""#), "{failed}");
        let left = logged(|| drop(End::of("x", "")));
        assert_eq!(left.lines().count(), 1, "{left}");
        assert!(left.contains("nobody waits"), "{left}");
    }
}
