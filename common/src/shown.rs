//! Text that somebody else has written, in a line of ours.

/// Its first `most` characters on one line, with `?` for those that are [harmful](is_harmful).
#[must_use]
pub fn shown(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if is_harmful(c) { '?' } else { c }).collect()
}

/// Whether it moves a terminal's cursor, ends a line, or changes the direction of writing (Unicode Standard Annex #9, section 2), so that a text
/// looks like another one.
#[must_use]
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_is_one_short_line() {
        assert_eq!(shown("a\nb\u{1b}[2Jc\u{202e}d\u{2028}é", 64), "a?b?[2Jc?d?é");
        assert_eq!(shown("ééé", 2), "éé");
    }
}
