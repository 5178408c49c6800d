//! Enums whose values are words: of libvirt's, of annotations and of settings.

/// Declares such an enum: its values with their words, which records have too. After `or`, an error for texts that are none of them, with
/// which the enum is parsed, and shown.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident or $error:ident $text:literal { $($of:tt)* }) => {
        $crate::words::words! { $(#[$doc])* $name { $($of)* } }

        #[doc = concat!("Why a text is no [`", stringify!($name), "`].")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error($text)]
        pub struct $error;

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::of(text).ok_or($error)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($(#[$of_one:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$of_one])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// The words of all.
            pub const WORDS: &[&str] = &[$($word),*];

            /// Its word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one with this word.
            #[must_use]
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }
    };
}

pub(crate) use words;
