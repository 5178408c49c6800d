//! Grants: which logins a source gave an image to, so that they may have it again without asking the source.
//!
//! The digest of an image is no secret: who knows it may not therefore have the image. But a source that gave an image
//! to a login would give it again, to that login and for a while ([`Limits::granted_for`]). A [`Grant`] in the record
//! of the name says so; a grant without a login is for everybody. It holds for one way from the name to the source:
//! when a rule, the handler or the order changes that way, the source is asked again.
//!
//! [`Limits::granted_for`]: crate::Limits::granted_for

use std::time::Duration;

use super::login::login;
use super::order::Order;
use super::way::Way;
use crate::sources::provider::{Registry, Want};
use crate::storage::content::{Grant, now};

/// Most logins that are remembered of a name.
const GRANTS: usize = 32;

/// How old a grant may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// No older than that.
    Within(Duration),
    /// As nobody can be asked. What an earlier release pulled has no grants, and counts as well.
    Any,
}

/// What the one who asks can show: a login on a way. Its texts are secret.
pub(super) struct Claim {
    own: String,
    /// What anybody can show.
    open: String,
}

impl Claim {
    pub(super) fn of(order: &Order, way: &Way, registry: &Registry) -> Self {
        let Want { auth, auth_server, .. } = &order.want;
        let login = auth.as_ref().map(|auth| login(auth, auth_server)).unwrap_or_default();
        let way = way.text(order, registry);
        Self { own: format!("{login}\n{way}"), open: format!("\n{way}") }
    }

    /// Whether what is granted is granted to this one.
    pub(super) fn is_granted(&self, granted: Option<&[Grant]>, age: Age) -> bool {
        let Some(granted) = granted else { return age == Age::Any };
        let now = now();
        let lives = |grant: &Grant| match age {
            Age::Any => true,
            // Of the future, as the clock was set back: who knows how old that is.
            Age::Within(longest) => now.checked_sub(grant.at).is_some_and(|age| age < longest.as_secs()),
        };
        granted.iter().filter(|grant| lives(grant)).any(|grant| grant.is_for(&self.own) || grant.is_for(&self.open))
    }

    /// What is granted once the source has given the image again. The same as before as long as what is there lives for
    /// a good while yet: a pull of what did not change then writes nothing.
    pub(super) fn granted(&self, before: Vec<Grant>, lapse: Duration) -> Vec<Grant> {
        let now = now();
        let is_own = |grant: &Grant| grant.is_for(&self.own);
        let is_young = |grant: &Grant| now.checked_sub(grant.at).is_some_and(|age| age <= lapse.as_secs() / 2);
        if before.iter().any(|grant| is_own(grant) && is_young(grant)) {
            return before;
        }
        let mut granted: Vec<_> = before.into_iter().filter(|grant| !is_own(grant)).collect();
        // The oldest are in front.
        granted.drain(..(granted.len() + 1).saturating_sub(GRANTS));
        granted.push(Grant::new(&self.own, now));
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn claim(login: &str) -> Claim {
        Claim { own: format!("{login}\nway"), open: "\nway".into() }
    }

    #[test]
    fn a_grant_is_for_its_login_and_one_without_is_for_all() {
        let (me, you, nobody) = (claim("me"), claim("you"), claim(""));
        let mine = me.granted(Vec::new(), HOUR);
        let open = nobody.granted(Vec::new(), HOUR);
        for (claim, granted, expected) in [
            (&me, &mine, true),
            (&you, &mine, false),
            (&nobody, &mine, false),
            (&me, &open, true),
            (&nobody, &open, true),
        ] {
            assert_eq!(claim.is_granted(Some(granted), Age::Within(HOUR)), expected);
            assert_eq!(claim.is_granted(Some(granted), Age::Any), expected);
        }
        assert!(!me.is_granted(Some(&[]), Age::Any) && !me.is_granted(None, Age::Within(HOUR)));
        assert!(me.is_granted(None, Age::Any), "pulled by an earlier release");
    }

    #[test]
    fn grants_lapse_and_are_renewed_in_good_time() {
        let me = claim("me");
        let aged = |seconds: u64| vec![Grant::new(&me.own, now().wrapping_sub(seconds))];
        for (seconds, lives) in [(10, true), (3590, true), (3600, false), (u64::MAX - 60, false)] {
            assert_eq!(me.is_granted(Some(&aged(seconds)), Age::Within(HOUR)), lives, "{seconds}");
            assert!(me.is_granted(Some(&aged(seconds)), Age::Any));
        }
        let young = aged(10);
        assert_eq!(me.granted(young.clone(), HOUR), young, "nothing to write");
        let renewed = me.granted(aged(1900), HOUR);
        assert_eq!(renewed.len(), 1);
        assert!(renewed[0].at + 60 > now());
    }

    #[test]
    fn only_so_many_logins_are_remembered() {
        let all = (0..100).fold(Vec::new(), |granted, user| claim(&format!("user {user}")).granted(granted, HOUR));
        assert_eq!(all.len(), GRANTS);
        assert!(claim("user 99").is_granted(Some(&all), Age::Any) && !claim("user 9").is_granted(Some(&all), Age::Any));
    }
}
