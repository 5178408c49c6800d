//! What a reader has taken out of a stream and not told yet.

use super::WINDOW;

/// Least that is told of at a time. Whoever sends has the rest of the window left meanwhile, so nobody waits for what is not told,
/// and a short exchange, a key and its echo, costs no frames for it.
const STEP: u32 = WINDOW / 4;

/// Bytes that credit is owed for.
#[derive(Debug, Default, Clone, Copy)]
pub struct Owed(u32);

impl Owed {
    /// Adds what was taken out; the credit that is to be given now, if any.
    pub fn taken(&mut self, bytes: usize) -> Option<u32> {
        self.0 = self.0.saturating_add(u32::try_from(bytes).unwrap_or(WINDOW)).min(WINDOW);
        (self.0 >= STEP).then(|| std::mem::take(&mut self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_given_in_steps_and_none_is_lost() {
        let mut owed = Owed::default();
        let step = STEP as usize;
        assert_eq!(owed.taken(1), None);
        assert_eq!(owed.taken(step - 2), None);
        assert_eq!(owed.taken(1), Some(STEP));
        assert_eq!(owed.taken(step - 1), None);
        assert_eq!(owed.taken(2), Some(STEP + 1));
        assert_eq!(owed.taken(WINDOW as usize), Some(WINDOW));
    }
}
