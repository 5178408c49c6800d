//! A failure of which no caller tells one kind from another.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Chain;

/// What failed or is wrong, in words, and its cause. Where a caller tells failures apart, an enum is right instead.
#[derive(Debug, Clone)]
pub struct Reason {
    text: Cow<'static, str>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Reason {
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), cause: None }
    }

    #[must_use]
    pub fn with(self, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { cause: Some(Arc::new(cause)), ..self }
    }

    /// For `map_err`.
    pub fn because<E: Error + Send + Sync + 'static>(text: &'static str) -> impl Fn(E) -> Self {
        move |cause| Self::new(text).with(cause)
    }
}

/// Whether they say the same.
impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        Chain(self).to_string() == Chain(other).to_string()
    }
}

impl Eq for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Error for Reason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_after_the_text() {
        let failed = Err::<(), _>(fmt::Error).map_err(Reason::because("failed to make pod `x`")).expect_err("failed");
        assert_eq!(failed.to_string(), "failed to make pod `x`");
        assert!(Chain(&failed).to_string().starts_with("failed to make pod `x`: an error occurred"));
        assert_ne!(failed, Reason::new("failed to make pod `x`"));
    }
}
