use std::num::NonZeroI32;

use super::*;

fn answer(code: i32, attributes: &[u8]) -> ErrorMessage {
    let mut error = ErrorMessage::default();
    error.code = NonZeroI32::new(code);
    error.header = [&[0; REQUEST_HEADER_LEN], attributes].concat();
    error
}

#[test]
fn code_zero_is_an_acknowledgement() {
    assert!(refusal(&answer(0, &[])).is_ok());
}

#[test]
fn the_kernels_words_are_kept() {
    let attributes = [8, 0, 1, 0, b'n', b'o', b'!', 0];
    let error = refusal(&answer(-2, &attributes)).expect_err("refused");
    assert_eq!(error.to_string(), "kernel refused: No such file or directory (no!)");
    assert!(error.is_absent());
}

#[test]
fn an_error_without_words_or_with_broken_ones_still_has_its_number() {
    for attributes in [&[][..], &[3, 0], &[200, 0, 1, 0, 1]] {
        let error = refusal(&answer(-16, attributes)).expect_err("refused");
        assert_eq!(error.to_string(), "kernel refused: Device or resource busy");
        assert_eq!(error.errno(), Some(Errno::EBUSY));
    }
}

#[test]
fn a_listing_that_breaks_off_is_none() {
    let done = |code: i32, extended_ack: &[u8]| {
        let mut done = DoneMessage::default();
        (done.code, done.extended_ack) = (code, extended_ack.to_vec());
        completed(&done)
    };
    assert!(done(0, &[]).is_ok());
    let error = done(-105, &[8, 0, 1, 0, b'n', b'o', b'!', 0]).expect_err("refused");
    assert_eq!(error.to_string(), "kernel refused: No buffer space available (no!)");
}
